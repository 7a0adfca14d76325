"""What a container runs: a job by its name, or the role that Spark gives a pod; and nothing when it is neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafscale_spark.launch import BACKEND, JOBS, Unknown, jobs, plan

DRIVER = {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}
EXECUTOR = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dn={number}" for number in (10, 2, 1)},
}


def test_a_job_runs_in_this_python_with_its_arguments() -> None:
    assert plan(["sql", "select 1", "--answer", "x"], {}) == [
        *(sys.executable, "-m", "kafscale_spark.jobs.sql", "select 1", "--answer", "x")
    ]


def test_every_module_that_has_a_main_of_its_own_is_a_job() -> None:
    mains = {path.stem for path in JOBS.glob("*.py") if "\ndef main(" in path.read_text()}
    assert {"sql", "export"} <= mains
    assert set(jobs()) == mains


@pytest.mark.parametrize("argv", [[], ["program"], ["__init__"], ["../launch"], ["executor", "more"]])
def test_what_is_no_job_is_refused_with_the_names_of_jobs(argv: list[str]) -> None:
    with pytest.raises(Unknown, match="there are .*export.*sql"):
        plan(argv, EXECUTOR)


def test_a_driver_is_spark_submit_in_its_own_pod() -> None:
    command = plan(["driver", "--class", "X", "local:///job.py", "orders"], DRIVER)
    assert command[0] == "spark-submit"
    assert command[-6:] == ["--deploy-mode", "client", "--class", "X", "local:///job.py", "orders"]
    assert "spark.driver.bindAddress=10.0.0.7" in command


def test_an_executor_is_told_all_that_spark_said_and_its_options_in_their_order() -> None:
    command = plan(["executor"], EXECUTOR)
    assert command[:6] == ["java", "-Dn=1", "-Dn=2", "-Dn=10", "-Xms1024m", "-Xmx1024m"]
    assert command[6:9] == ["-cp", "/spark/jars/*", BACKEND]
    assert dict(zip(command[9::2], command[10::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }
    placed = plan(["executor"], EXECUTOR | {"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/more/*"})
    assert placed[7] == "/conf:/more/*:/spark/jars/*"


@pytest.mark.parametrize("missing", [name for name in EXECUTOR if "OPT" not in name])
def test_a_pod_that_was_not_told_something_says_what(missing: str) -> None:
    with pytest.raises(Unknown, match=missing):
        plan(["executor"], {name: value for name, value in EXECUTOR.items() if name != missing})


def test_the_command_says_in_a_sentence_what_it_does_not_know() -> None:
    command = Path(sys.executable).with_name("kafscale-spark")
    done = subprocess.run([command, "nonsense"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("kafscale-spark: there is no job nonsense; there are ")
