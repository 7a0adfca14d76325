#!/bin/sh
# `run.sh COMMAND…` with an engine and the images, built now, for whatever runs compose.yaml for real. The engine that
# runs, with the images that compose.yaml names; where none runs, one of our own (root, Debian's docker.io, iptables and
# debootstrap), with a base and stand-ins built from Debian and PyPI, and all of it is removed afterwards.
set -eu
cd "$(dirname "$0")/../.."
here=e2e/containers
folder=$PWD/out/containers
say() { echo "containers: $1" >&2; }
export KAFSCALE_BASE_IMAGE="${KAFSCALE_BASE_IMAGE:-python:3.11-slim-bookworm}"

if ! docker info >/dev/null 2>&1; then
    for program in dockerd docker debootstrap iptables; do
        command -v "$program" >/dev/null || { echo "$program is missing: apt-get install docker.io iptables debootstrap" >&2; exit 1; }
    done
    trap '$here/engine.sh stop "$folder/engine"' EXIT
    trap 'exit 130' INT TERM
    say "no engine runs: starting one in $folder/engine"
    $here/engine.sh start "$folder/engine"
    export DOCKER_HOST="unix://$folder/engine/docker.sock" DOCKER_CONFIG="$folder"
    $here/plugins.sh "$folder"
    say "a base by debootstrap (two minutes)"
    $here/base.sh kafscale-base
    say "stand-ins for etcd, SeaweedFS, redis and HAProxy"
    $here/standins.sh kafscale-base
    export KAFSCALE_BASE_IMAGE=kafscale-base KAFSCALE_BUILD_NETWORK=host \
        KAFSCALE_ETCD_IMAGE=standin-etcd KAFSCALE_SEAWEEDFS_IMAGE=standin-seaweedfs \
        KAFSCALE_REDIS_IMAGE=standin-redis KAFSCALE_HAPROXY_IMAGE=standin-haproxy
fi
say "the images of the services"
docker compose build --quiet
say "$*"
"$@"
