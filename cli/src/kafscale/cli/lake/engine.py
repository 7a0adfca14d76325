"""Runs a job of Spark's project on the cluster that a command's options name.

Spark has a separate environment, so the job is a separate process. KAFSCALE_* variables name the cluster.
Its messages go to the error stream at once, its answer into a file. For a stopped cluster, etcd runs as long as the
job.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import seconds
from kafscale.cli.targets import on_cluster
from kafscale.cli.terminal import fail
from kafscale.operations.datadir import DataDir
from kafscale.operations.target import Target

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster

PYTHON: Final = "KAFSCALE_SPARK_PYTHON"
TOOLS: Final = "KAFSCALE_TOOLS_DIR"
"""Where Java is unpacked if the machine has none."""
STDERR: Final = 2
STOP_TIMEOUT_S: Final = 20.0
REPORTED: Final = 1
"""The exit code of a job that has printed its error."""
_CHECKOUT: Final = Path(__file__).resolve().parents[5]


class Engine(StrEnum):
    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    Engine, typer.Option(help="local: in this process. spark: in a Spark on all cores of this machine.")
]


def spark_python() -> Path:
    """The interpreter of Spark's environment."""
    named = os.environ.get(PYTHON)
    found = Path(named) if named else _CHECKOUT / "spark" / "engine" / ".venv" / "bin" / "python"
    if not found.exists():
        raise fail(
            f"Spark's environment does not exist ({found}); create it with `tools/setup.sh spark`, or set {PYTHON} "
            "to its Python"
        )
    return found


def run_job(job: str, args: Sequence[str], target: Target) -> bytes:
    """The answer of the job. A failure is printed, and raised as typer's Exit."""
    python = str(spark_python())
    with TemporaryDirectory(prefix="kafscale-") as folder:
        answer = Path(folder) / "answer"
        command = [python, "-m", f"kafscale_spark.jobs.{job}", "--answer", str(answer), *args]
        more = {} if target.data_dir is None else {TOOLS: str(DataDir(target.data_dir).tools.absolute())}
        code = on_cluster(partial(_run, command, more), target)
        if code == REPORTED:
            raise typer.Exit(REPORTED)
        if code:
            raise fail(f"Spark's job ended with exit code {code}")
        return answer.read_bytes()


def job_arguments(topics: Iterable[str] | None, grace: str, *, dry_run: bool) -> list[str]:
    """--topic, --grace and --dry-run of a command, for a job."""
    words = [*(f"--topic={name}" for name in topics or ()), f"--grace-s={seconds(grace)}"]
    return [*words, "--dry-run"] if dry_run else words


async def _run(command: Sequence[str], more: Mapping[str, str], cluster: Cluster) -> int:
    environment = {**os.environ, **_variables(cluster), **more}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=STDERR)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
        raise


def _variables(cluster: Cluster) -> Mapping[str, str]:
    """Where the cluster is. The job inherits the credentials of S3 and etcd from this process's environment."""
    settings = cluster.settings
    found = {
        "KAFSCALE_ETCD_ENDPOINTS": ",".join(settings.etcd_endpoints),
        "KAFSCALE_NAMESPACE": settings.namespace,
        "KAFSCALE_OBJECT_STORE": settings.object_store_kind,
    }
    if settings.object_dir is not None:
        found["KAFSCALE_OBJECT_DIR"] = str(settings.object_dir)
    return found
