"""`make compose-footprint`: the measurements of bench.footprint for the images, with each service in its container.

A container of compose.yaml is stopped and started, alone, until /readyz returns 200. The engine's work before the
process starts is not included. Memory and CPU are those of the container's only process.
"""

from __future__ import annotations

import argparse
import time
from datetime import datetime

from bench.footprint import SERVICES, Start, at_rest, table, until_ready
from bench.spent import cpu_seconds
from e2e.harness.compose import Compose, Container, docker
from e2e.harness.services import readiness


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--idle-s", type=float, default=60.0)
    options = parser.parse_args()
    system = Compose()
    try:
        system.up()
        containers = {role: system.containers(role)[0] for role in SERVICES}
        idles = at_rest({role: each.state["Pid"] for role, each in containers.items()}, options.idle_s)
        starts = {
            role: [start(role, each) for _ in range(options.starts)] for role, each in containers.items()
        }
        print(table(starts, idles))
        print(sizes())
    finally:
        system.tear_down()


def start(role: str, container: Container) -> Start:
    docker("stop", container.id)
    docker("start", container.id)
    state, http = container.state, container.http
    until_ready(role, lambda: readiness(http)[0] == 200, lambda: docker("logs", "--tail", "15", container.id))
    wall_s = time.time() - datetime.fromisoformat(state["StartedAt"]).timestamp()
    return Start(wall_s=wall_s, cpu_s=cpu_seconds(state["Pid"]))


def sizes() -> str:
    """The sizes of the images in MB, as `docker image ls` counts them."""
    shown = ("image", "ls", "--format", "{{.Repository}}: {{.Size}}")
    return "\n".join(docker(*shown, f"kafscale-{role}").strip() for role in SERVICES)


if __name__ == "__main__":
    main()
