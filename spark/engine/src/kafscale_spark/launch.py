"""`kafscale-spark JOB ARGS` runs a job by its name. It also supports the commands of Spark's pods on Kubernetes.

There Spark starts a container with `driver ARGS` or `executor`, and passes the rest in variables. An image without
these commands can run jobs, but not on Spark's cluster. The command replaces this process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

JOBS: Final = Path(__file__).parent / "jobs"
PROGRAM: Final = '\nif __name__ == "__main__":\n'
BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
EXECUTOR: Final[Mapping[str, str]] = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""The arguments of an executor, and the variables in which Spark passes them (its Constants.scala)."""


class Unknown(Exception):
    """There is no such job, or a variable that Spark sets in its pods is missing."""


def main() -> None:
    try:
        command = plan(sys.argv[1:], os.environ)
    except Unknown as trouble:
        sys.exit(f"kafscale-spark: {trouble}")
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def plan(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command to run. Raises Unknown."""
    match argv:
        case ["driver", *rest]:
            return _driver(rest, environ)
        case ["executor"]:
            return _executor(environ)
        case [job, *rest] if job in jobs():
            return [sys.executable, "-m", f"kafscale_spark.jobs.{job}", *rest]
    asked = f"there is no job {argv[0]}" if argv else "a job's name is missing"
    raise Unknown(f"{asked}; there are {', '.join(jobs())}")


def jobs() -> list[str]:
    """The modules that are programs, by their last lines: importing all of them costs as much as a small job."""
    return sorted(path.stem for path in JOBS.glob("*.py") if PROGRAM in path.read_text())


def _driver(rest: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Spark has planned the pods already, so this pod runs the driver in client mode."""
    address = _variable(environ, "SPARK_DRIVER_BIND_ADDRESS")
    bound = ["--conf", f"spark.driver.bindAddress={address}"]
    known = ["--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
    return ["spark-submit", *bound, *known, "--deploy-mode", "client", *rest]


def _executor(environ: Mapping[str, str]) -> list[str]:
    numbered = [name for name in environ if name.startswith(JAVA_OPTION)]
    options = [environ[name] for name in sorted(numbered, key=lambda name: int(name[len(JAVA_OPTION) :]))]
    memory = _variable(environ, "SPARK_EXECUTOR_MEMORY")
    places = (environ.get("SPARK_CONF_DIR"), environ.get("SPARK_CLASSPATH"))
    jars = f"{_variable(environ, 'SPARK_HOME')}/jars/*"
    command = ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp"]
    command += [":".join([*(place for place in places if place), jars]), BACKEND]
    for flag, name in EXECUTOR.items():
        command += [flag, _variable(environ, name)]
    return command


def _variable(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name)
    if not found:
        raise Unknown(f"Spark has not set {name}: this is for pods that Spark starts")
    return found
