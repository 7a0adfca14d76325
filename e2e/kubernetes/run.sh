#!/bin/sh
# `run.sh COMMAND…` where a Kubernetes of one node can run, without a trace on this machine: in namespaces of its own for the
# network, mounts and processes. The command's end kills whatever still runs in them. The programs and the images are built
# before, once. Needs root, Go, and Debian's containerd, runc, containernetworking-plugins, iptables and iproute2; to build
# the images, a Docker engine, or Debian's docker.io and debootstrap.
set -eu
cd "$(dirname "$0")/../.."
folder=$PWD/out/kubernetes
missing() { echo "kubernetes: $1 is missing: apt-get install containerd runc containernetworking-plugins docker.io debootstrap iptables iproute2, and Go" >&2; exit 1; }
for program in go containerd runc iptables ip unshare; do command -v "$program" >/dev/null || missing "$program"; done
[ -x /usr/lib/cni/bridge ] || missing /usr/lib/cni/bridge
# The images are built after ten minutes of compiling: what that needs is looked for now.
docker info >/dev/null 2>&1 || for program in dockerd debootstrap; do command -v "$program" >/dev/null || missing "$program"; done

# What is left of a node: its files, the groups of its pods, and two folders with fixed places.
clean() {
    rm -rf "$folder"
    for group in /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io; do
        [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \;
    done
    for place in /var/lib/cni /var/lib/kubelet; do [ ! -d "$place" ] || rmdir "$place"; done
}

.venv/bin/python -m e2e.harness.kubernetes.parts
clean
trap clean EXIT
trap 'exit 130' INT TERM
mkdir -p "$folder"
unshare --net --mount --pid --fork --kill-child --mount-proc e2e/kubernetes/inside.sh "$folder" "$@"
