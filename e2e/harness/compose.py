"""The system as `docker compose up` runs it, under a separate project name. Tests use it from the host.

The caller names the engine and the images with the usual variables (`e2e/containers/run.sh` does). etcd and the bucket
are published to loopback in addition to the ports of compose.yaml, because checkers read them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from kafscale.runtime.ports import free_port
from kafscale.storage.objects import ObjectStore, S3Config
from kafscale.storage.objects.s3 import S3Store

from e2e.harness.inside import Inside, metric
from e2e.harness.services import NotYet, until

ROOT = Path(__file__).parent.parent.parent
OVERRIDE = Path(__file__).parent.parent / "containers" / "compose.test.yaml"
ROLES = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep")
FOUNDATIONS = ("kafka", "redis", "etcd", "s3")
PROJECT = "kafscale-test"
COMMAND_TIMEOUT_S = 600
HEALTHY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60
PARTITIONS = 3
"""Of topics that are created when first used, as the client programs expect."""
ACCESS_KEY, SECRET_KEY = "kafscale", "kafscale-secret"


def require_compose() -> None:
    """Skips, or fails in CI, where no engine with compose is to be had."""
    if shutil.which("docker") and run(["docker", "compose", "version"]).returncode == 0:
        return
    if os.environ.get("CI"):
        pytest.fail("docker compose is not to be had")
    pytest.skip("docker compose is not to be had")


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def docker(*arguments: str) -> str:
    done = run(["docker", *arguments])
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-3000:]}"
    return done.stdout


def config(*profiles: str) -> dict[str, Any]:
    """compose.yaml as compose understands it, with everything filled in."""
    chosen = [part for profile in profiles for part in ("--profile", profile)]
    done = run(["docker", "compose", *chosen, "config", "--format", "json"])
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@dataclass(frozen=True, slots=True)
class Container:
    """One container, by its id, which a restart keeps."""

    id: str

    def inspect(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(docker("inspect", self.id))[0]
        return found

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.inspect()["State"]
        return found

    @property
    def healthy(self) -> bool:
        return bool(self.state.get("Health", {}).get("Status") == "healthy")

    @property
    def http(self) -> str:
        """Where the engine's host reaches its pages."""
        [network] = self.inspect()["NetworkSettings"]["Networks"].values()
        return f"{network['IPAddress']}:8000"

    def counted(self, name: str) -> float:
        """Sum of a counter over its labels; 0 without an answer."""
        try:
            return sum(metric(self.http, name).values())
        except (URLError, OSError):
            return 0.0

    def kill_and_wait(self) -> None:
        """kill -9 of its main process, as a crash is; the engine starts it again, and it is healthy."""
        before = self.state
        os.kill(before["Pid"], signal.SIGKILL)
        until(f"{self.id} is started again", lambda: self._again(before["StartedAt"]), HEALTHY_TIMEOUT_S)
        self.wait_healthy()

    def _again(self, began: str) -> bool:
        now = self.state
        return bool(now["Running"] and now["StartedAt"] != began)

    def wait_healthy(self) -> None:
        try:
            until(f"{self.id} is healthy", lambda: self.healthy, HEALTHY_TIMEOUT_S)
        except NotYet as late:
            raise AssertionError(f"{late}\n{self.story()}") from late

    def story(self) -> str:
        """The end of what it has written: services log to standard error, which `docker logs` keeps apart."""
        log = run(["docker", "logs", "--tail", "60", self.id])
        return f"{self.inspect()['Name']}\n{log.stdout}{log.stderr}"

    def stop_and_start(self) -> int:
        """SIGTERM, and the exit code; it is healthy again when this returns."""
        docker("stop", "--time", str(STOP_TIMEOUT_S), self.id)
        code = int(self.state["ExitCode"])
        docker("start", self.id)
        self.wait_healthy()
        return code


@dataclass(slots=True)
class Compose:
    """`up` and `down`; between them what the law asks of a system under test."""

    port: int = field(default_factory=free_port)
    etcd_port: int = field(default_factory=free_port)
    s3_port: int = field(default_factory=free_port)
    more: Sequence[Path] = ()
    """Files that change compose.yaml."""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def compose(self, *arguments: str) -> str:
        env = {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "KAFSCALE_PORT": str(self.port),
            "KAFSCALE_TEST_ETCD_PORT": str(self.etcd_port),
            "KAFSCALE_TEST_S3_PORT": str(self.s3_port),
            "KAFSCALE_TEST_PARTITIONS": str(PARTITIONS),
        }
        paths = (ROOT / "compose.yaml", *self.more, OVERRIDE)
        files = [part for path in paths for part in ("--file", str(path))]
        done = run(["docker", "compose", *files, *arguments], env)
        assert done.returncode == 0, (
            f"compose {' '.join(arguments)}:\n{done.stderr[-3000:]}{self.stories(sick_only=True)}"
        )
        return done.stdout

    def stories(self, *, sick_only: bool) -> str:
        """The ends of the logs of all containers, or of those that are not well."""
        found = [each for role in (*ROLES, *FOUNDATIONS) for each in self.containers(role)]
        return "".join(f"\n{each.story()}" for each in found if not (sick_only and each.healthy))

    def up(self, scale: Mapping[str, int] | None = None) -> None:
        """Returns when all are healthy, those included that the last scenario has harmed.

        They are waited for first: compose gives up at once where a container is unhealthy, though it may get well.
        """
        for role in (*ROLES, *FOUNDATIONS):
            for each in self.containers(role):
                each.wait_healthy()
        scaled = [part for role, count in (scale or {}).items() for part in ("--scale", f"{role}={count}")]
        timeout = ("--wait-timeout", str(int(HEALTHY_TIMEOUT_S)))
        self.compose("up", "--detach", "--no-build", "--no-recreate", "--wait", *timeout, *scaled)

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "1")

    def containers(self, service: str) -> list[Container]:
        labels = {"project": PROJECT, "service": service}
        filters = [
            part
            for name, value in labels.items()
            for part in ("--filter", f"label=com.docker.compose.{name}={value}")
        ]
        return [Container(each) for each in docker("ps", "--all", "--quiet", *filters).split()]

    def inside(self) -> Inside:
        return Inside(f"http://127.0.0.1:{self.etcd_port}")

    def open_store(self) -> ObjectStore:
        return S3Store(
            S3Config(
                bucket="kafscale",
                endpoint=f"http://127.0.0.1:{self.s3_port}",
                access_key_id=ACCESS_KEY,
                secret_access_key=SECRET_KEY,
            )
        )

    @property
    def env(self) -> dict[str, str]:
        """How a command on the host reaches its bucket."""
        return {
            "KAFSCALE_OBJECT_STORE": "s3",
            "KAFSCALE_S3_ENDPOINT": f"http://127.0.0.1:{self.s3_port}",
            "KAFSCALE_S3_ACCESS_KEY_ID": ACCESS_KEY,
            "KAFSCALE_S3_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def tear_down(self) -> None:
        """Whatever the test has left, gone; a failure here must not hide the test's own."""
        with suppress(AssertionError):
            self.down()
