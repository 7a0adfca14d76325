#!/bin/sh
# A Docker engine of our own, for a machine where none runs: `engine.sh start FOLDER`, `engine.sh stop FOLDER`.
# Needs root and Debian's docker.io and iptables. It changes no firewall rule and makes no bridge until compose asks
# for a network; `stop` leaves no process, no data and no network link behind.
set -eu
what=$1
folder=$2
export DOCKER_HOST="unix://$folder/docker.sock"
START_TIMEOUT_S=60
STOP_TIMEOUT_S=90

# wait_for SECONDS COMMAND…: until the command succeeds
wait_for() {
    left=$1
    shift
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        if [ "$left" -le 0 ]; then return 1; fi
        sleep 1
    done
}

start() {
    mkdir -p "$folder"
    dockerd --data-root "$folder/data" --exec-root "$folder/exec" --pidfile "$folder/pid" -H "$DOCKER_HOST" \
        --storage-driver overlay2 --bridge none --iptables=false --ip6tables=false --ip-masq=false --userland-proxy=true \
        >"$folder/engine.log" 2>&1 &
    wait_for "$START_TIMEOUT_S" docker info || { tail -n 20 "$folder/engine.log" >&2; exit 1; }
}

gone() { ! kill -0 "$pid"; }

stop() {
    [ -f "$folder/pid" ] || { rm -rf "$folder/data" "$folder/exec"; return 0; }
    pid=$(cat "$folder/pid")
    containers=$(docker ps --all --quiet)
    # shellcheck disable=SC2086 -- a list of ids
    if [ -n "$containers" ]; then docker rm --force --volumes $containers >/dev/null; fi
    docker network prune --force >/dev/null
    kill "$pid"
    wait_for "$STOP_TIMEOUT_S" gone || kill -KILL "$pid"
    # What the engine mounts for containers that had the host's network, and leaves.
    for mount in $(awk -v below="$folder/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r); do
        umount "$mount"
    done
    rm -rf "$folder/data" "$folder/exec" "$folder/docker.sock" "$folder/pid"
}

case $what in
    start) start ;;
    stop) stop ;;
    *) echo "engine.sh: start or stop, not $what" >&2; exit 2 ;;
esac
