"""The image of Spark's jobs, in containers as Kubernetes would run them: no rights, two folders to write to.

Law: a job finds the records that a producer wrote, started by its name or by spark-submit; the archive of classes is
used; nothing that builds things is left inside. `make spark-image-test` makes the image before, and needs an engine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.harness.clients import CLIENTS
from e2e.harness.cluster import Cluster
from e2e.harness.manifests import of_kind, rendered

IMAGE = os.environ.get("IMAGE", "kafscale-spark")
RECORDS = 300
JOB_TIMEOUT_S = 900
ARCHIVED = "shared objects file (top)"
CLASSES_MIN = 5_000
COUNT = "select topic, count(*) as n from records group by topic"
CONFINED = (
    *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--memory", "2g"),
    *("--tmpfs", "/tmp:size=512m", "--tmpfs", "/scratch:size=1g,uid=10001"),
)

pytestmark = [pytest.mark.image, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("image") / "d")
    cluster.start()
    client = next(client for client in CLIENTS if client.name == "confluent")
    client.produce(cluster.bootstrap, "orders", "lz4", RECORDS)
    yield cluster
    cluster.kill()


def of_cluster(cluster: Cluster) -> list[str]:
    endpoints = json.loads((cluster.data_dir / "run" / "endpoints.json").read_text())
    told = {
        "KAFSCALE_ETCD_ENDPOINTS": endpoints["etcd"],
        "KAFSCALE_NAMESPACE": endpoints["namespace"],
        "KAFSCALE_OBJECT_STORE": "dir",
        "KAFSCALE_OBJECT_DIR": endpoints["object_dir"],
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    variables = [part for name, value in told.items() for part in ("--env", f"{name}={value}")]
    shared = (Path(endpoints["etcd"].removeprefix("unix://")).parent, endpoints["object_dir"])
    volumes = [part for folder in shared for part in ("--volume", f"{folder}:{folder}:ro")]
    # The data directory is shut to everybody but the user who runs the cluster.
    return [*variables, *volumes, "--network", "host", "--user", f"{os.getuid()}:{os.getgid()}"]


def run(options: Sequence[str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "run", "--rm", *CONFINED, *options, IMAGE, *command],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )


def test_a_job_by_its_name_finds_what_was_written(cluster: Cluster) -> None:
    done = run(of_cluster(cluster), "sql", COUNT)
    assert done.returncode == 0, done.stderr
    assert row_of("orders", done.stdout) == ["orders", str(RECORDS)]


def test_the_same_job_under_spark_submit(cluster: Cluster) -> None:
    submit = ["--entrypoint", "spark-submit"]
    done = run([*of_cluster(cluster), *submit], "--master", "local[2]", "/opt/kafscale/jobs/sql.py", COUNT)
    assert done.returncode == 0, done.stderr
    assert row_of("orders", done.stdout) == ["orders", str(RECORDS)]


def row_of(name: str, table: str) -> list[str]:
    [line] = [line for line in table.splitlines() if line.startswith(f"|{name}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_classes_come_from_the_archive(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    logged = "-XX:SharedArchiveFile=/opt/kafscale/classes.jsa -Xlog:class+load:file=/log/classes.log"
    options = ["--volume", f"{tmp_path}:/log", "--env", f"SPARK_SUBMIT_OPTS={logged}", "--network", "none"]
    session = "from kafscale_spark.session import local; print(local('start').range(9).count())"
    done = run([*options, "--entrypoint", "python"], "-c", session)
    assert done.stdout == "9\n", done.stderr
    lines = (tmp_path / "classes.log").read_text().splitlines()
    assert sum(ARCHIVED in line for line in lines) > CLASSES_MIN


def test_a_container_is_nobody_and_holds_no_tools() -> None:
    words = (
        "id -u; id -un; for each in gcc cc javac /opt/kafscale/bin/pip; do command -v $each; done; "
        "ls /var/lib/apt/lists; find / -xdev -writable -type d 2>/dev/null | grep -v -E '^/(tmp|scratch|proc|dev)'"
    )
    done = run(["--network", "none", "--entrypoint", "/bin/sh"], "-c", words)
    assert done.stdout.split() == ["10001", "kafscale"], done.stdout + done.stderr


def test_the_manifests_mean_this_image_and_its_user_and_its_jobs() -> None:
    inspected = subprocess.run(
        ["docker", "image", "inspect", IMAGE], capture_output=True, text=True, timeout=60, check=True
    )
    config = json.loads(inspected.stdout)[0]["Config"]
    done = run(["--network", "none", "--entrypoint", "/bin/ls"], "/opt/kafscale/jobs/")
    for cronjob in of_kind(rendered("spark-cronjobs"), "CronJob"):
        pod = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        user = pod["securityContext"]
        assert config["User"] == f"{user['runAsUser']}:{user['runAsGroup']}"
        assert f"{pod['containers'][0]['args'][0]}.py" in done.stdout.split()
    for application in of_kind(rendered("spark-operator"), "ScheduledSparkApplication"):
        program = application["spec"]["template"]["mainApplicationFile"]
        assert program.removeprefix("local:///opt/kafscale/jobs/") in done.stdout.split()


def test_a_container_that_is_told_to_end_does() -> None:
    name = f"kafscale-{uuid.uuid4().hex}"
    options = ["--name", name, "--network", "none", "--env", "KAFSCALE_ETCD_ENDPOINTS=http://127.0.0.1:1"]
    command = ["docker", "run", "--rm", *CONFINED, *options, "--entrypoint", "tini", IMAGE, "--", "python"]
    program = "import time; print('up', flush=True); time.sleep(3600)"
    with subprocess.Popen([*command, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        subprocess.run(
            ["docker", "kill", "--signal", "TERM", name], capture_output=True, timeout=60, check=True
        )
        assert process.wait(60) == 128 + signal.SIGTERM
