#!/bin/sh
# `inside.sh FOLDER COMMAND…` as the first process of run.sh's namespaces. FOLDER becomes /run/k8s-test, where all files of the
# node are. Names are resolved by the cluster's DNS, and nothing outside can be reached.
set -eu
folder=$1
shift
mount --make-rshared /
resolv=$(readlink -f /etc/resolv.conf)
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=755 none /var/log
mkdir -p /run/k8s-test /run/lock /run/kernel /var/lib/cni /var/lib/kubelet "$(dirname "$resolv")"
mount --bind "$folder" /run/k8s-test
mount -t tmpfs -o mode=755 none /var/lib/cni
mount -t tmpfs -o mode=755 none /var/lib/kubelet
: >/run/k8s-test/no-resolvers
printf 'nameserver 10.96.0.10\nsearch svc.cluster.local cluster.local\noptions ndots:5\n' >/run/resolvers
[ -e "$resolv" ] || : >"$resolv"
mount --bind /run/resolvers "$resolv"

# The kubelet sets these for the whole machine. It reads here that they have its values already.
kernel() {
    echo "$2" >"/run/kernel/$1"
    mount --bind "/run/kernel/$1" "/proc/sys/$(echo "$1" | tr . /)"
}
kernel vm.overcommit_memory 1
kernel kernel.panic 10
kernel kernel.panic_on_oops 1

ip link set lo up
ip link add node0 type veth peer name node1
ip addr add 10.243.0.1/24 dev node0
ip link set node0 up
ip link set node1 up
# The addresses of Services need a route, though kube-proxy replaces them. What it does not replace goes nowhere.
ip route add default dev node0
"$@"
