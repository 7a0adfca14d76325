"""A job of Spark's project gets the address of the cluster, and the caller gets the job's result.

Spark's Python is a small program here: it records its arguments and variables, and answers as a job does.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafscale.cli.__main__ import app
from kafscale.lake.compaction.report import DONE, DUE, DuePlan, Summary
from kafscale.lake.retention.apply import Report
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.report import OrphanSummary, report_to_json
from kafscale.operations.datadir import DataDir, Endpoints
from kafscale.runtime.etcd_binary import EtcdProcess
from typer.testing import CliRunner, Result

PROGRAM = """#!{python}
import json, os, shutil, sys

told = {{name: value for name, value in os.environ.items() if name.startswith("KAFSCALE_")}}
with open({heard!r}, "w") as file:
    json.dump({{"args": sys.argv[1:], "told": told}}, file)
print("this is for people")
code = int(os.environ.get("TEST_CODE", "0"))
if not code:
    shutil.copy({plan!r} if "--dry-run" in sys.argv else {answer!r}, sys.argv[4])
sys.exit(code)
"""


class Spark:
    """A substitute for Spark's Python: what it received, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self.answer = folder / "to-answer"
        self.plan = folder / "to-plan"
        self._heard = folder / "heard.json"
        self.python.write_text(
            PROGRAM.format(
                python=sys.executable,
                heard=str(self._heard),
                answer=str(self.answer),
                plan=str(self.plan),
            )
        )
        self.python.chmod(0o755)

    def answers_table(self, table: pa.Table) -> None:
        with pa.OSFile(str(self.answer), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    def answers(self, told: Any) -> None:
        self.answer.write_text(json.dumps(told))

    def plans(self, told: Any) -> None:
        """The answer to --dry-run."""
        self.plan.write_text(json.dumps(told))

    @property
    def heard(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._heard.read_text())
        return found

    @property
    def args(self) -> list[str]:
        """Behind the name of the job and the place of the answer."""
        args: list[str] = self.heard["args"]
        assert args[0] == "-m"
        assert args[2] == "--answer"
        return [args[1].removeprefix("kafscale_spark.jobs."), *args[4:]]


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spark:
    spark = Spark(tmp_path)
    monkeypatch.setenv("KAFSCALE_SPARK_PYTHON", str(spark.python))
    return spark


@pytest.fixture
def data(tmp_path: Path, etcd_server: EtcdProcess) -> DataDir:
    """A directory on which a cluster runs, as far as a command can see that only looks whether its etcd answers."""
    data = DataDir(tmp_path / "data")
    data.acquire()
    endpoints = Endpoints(
        bootstrap_servers="127.0.0.1:1",
        etcd=etcd_server.endpoint,
        namespace="shop",
        object_dir=str(data.objects),
        pid=1,
    )
    data.publish(endpoints)
    return data


def run(data: DataDir, *words: str) -> Result:
    """`words`: a command or a command of a group, then options."""
    at = 2 if words[0] == "retention" else 1
    line = [*words[:at], "--engine", "spark", "--data-dir", str(data.root), *words[at:]]
    return CliRunner().invoke(app, line)


def test_a_query_goes_to_spark_with_its_cluster_and_comes_back_as_rows(
    spark: Spark, data: DataDir, etcd_server: EtcdProcess
) -> None:
    spark.answers_table(pa.table({"n": [7], "key": [b"\xff"]}))
    done = run(data, "sql", "--output", "json", "--", "-- seven\nselect 7 as n")
    assert json.loads(done.stdout) == [{"n": 7, "key": "\\xff"}], done.output
    assert spark.args == ["sql", "--isolation", "read_committed", "--", "-- seven\nselect 7 as n"]
    told = spark.heard["told"]
    assert told["KAFSCALE_ETCD_ENDPOINTS"] == etcd_server.endpoint
    assert told["KAFSCALE_NAMESPACE"] == "shop"
    assert told["KAFSCALE_OBJECT_STORE"] == "dir"
    assert told["KAFSCALE_OBJECT_DIR"] == str(data.objects)
    assert told["KAFSCALE_TOOLS_DIR"] == str(data.tools)


def test_an_export_goes_to_spark(spark: Spark, data: DataDir, tmp_path: Path) -> None:
    row = {"topic": "orders", "partition": 0, "first": 0, "end": 9, "files": 1, "rows": 9, "bytes": 1_000}
    spark.answers([row])
    done = run(data, "export", "orders", "bills", "--to", str(tmp_path / "out"), "--output", "json")
    assert json.loads(done.stdout) == [row], done.output
    assert "9 records in 1 new files of 1,000 bytes" in done.stderr
    out = str(tmp_path / "out")
    assert spark.args == ["export", "orders", "bills", "--to", out, "--isolation", "read_committed"]
    refused = run(data, "export", "orders", "--to", str(tmp_path / "out"), "--where", "true")
    assert refused.exit_code == 2
    assert "local engine" in refused.stderr


PLAN_ROW = {"topic": "orders", "partition": 0, "segment": 10, "rule": "time", "age_ms": 9, "bytes": 100}
LOSS_ROW = {"group": "g", "topic": "orders", "partition": 0, "committed": 3, "start": 10, "records": 7}


def test_a_plan_of_retention_comes_back_with_what_if(spark: Spark, data: DataDir) -> None:
    planned = {"logs": 4, "bytes": 100, "bytes_own": 40, "rows": [PLAN_ROW], "losses": [LOSS_ROW]}
    spark.answers(planned)
    spark.plans(planned)
    by_segment = ("--by", "segment", "-o", "json")
    done = run(data, "retention", "what-if", "--retention-ms", "-1", "--topic", "orders", *by_segment)
    assert json.loads(done.stdout) == {
        "plan": [PLAN_ROW],
        "bytes": 100,
        "bytes_saved": 60,
        "losses": [LOSS_ROW],
    }
    assert spark.args == ["retention_what_if", "--topic=orders", "--retention-ms=-1"]
    shown = run(data, "retention", "apply", "--dry-run", "--topic", "orders", *by_segment)
    assert json.loads(shown.stdout)["plan"] == [PLAN_ROW]
    assert "1 segments of 4 logs, 100 bytes\n" in shown.stderr
    assert spark.args == ["retention", "--topic=orders", "--dry-run"]


def test_a_run_of_retention_that_missed_a_log_fails(spark: Spark, data: DataDir) -> None:
    report = Report(logs=2, moved=1, segments=3, bytes=10, fates=Counter({Fate.DELETED: 6}))
    spark.plans({"logs": 2, "bytes": 10, "bytes_own": 10, "rows": [PLAN_ROW], "losses": [LOSS_ROW]})
    spark.answers(report_to_json(report))
    done = run(data, "retention", "apply", "--yes", "-o", "json")
    assert done.exit_code == 0, done.output
    assert "records that they have not read: g 7" in done.stderr
    assert [word.partition("/")[0] for word in spark.args] == [
        "retention",
        "--grace-s=300.0",
        "--starts-max=",
    ]
    (row,) = json.loads(done.stdout)
    assert (row["moved"], row["objects_deleted"], row["objects_failed"]) == (1, 6, 0)
    spark.answers(report_to_json(replace(report, missed={"orders/0": "it is damaged"})))
    done = run(data, "retention", "apply", "--yes")
    assert done.exit_code == 1
    assert "orders/0 was skipped: it is damaged" in done.stderr


def test_a_collection_of_orphans_goes_to_spark(spark: Spark, data: DataDir) -> None:
    row = {"topic": "orders", "object": "x.kfs", "bytes": 5}
    spark.plans(asdict(OrphanSummary(partitions=3, orphans=[row], bytes=5, failed=1)))
    done = run(data, "orphans", "--dry-run", "-o", "json")
    assert json.loads(done.stdout) == {"plan": [row]}
    assert spark.args == ["orphans", "--grace-s=300.0", "--dry-run"]
    assert done.exit_code == 1
    assert "1 objects could not be deleted" in done.stderr


def test_compaction_goes_to_spark(spark: Spark, data: DataDir) -> None:
    due = dict.fromkeys(DUE.schema.names, 1)
    spark.plans(asdict(DuePlan(rows=[due], losses=[LOSS_ROW])))
    shown = run(data, "compact", "--dry-run", "--io-bytes-per-s", "9", "-o", "json")
    assert json.loads(shown.stdout) == {"plan": [due], "losses": [LOSS_ROW]}
    assert spark.args == ["compaction", "--grace-s=300.0", "--dry-run"]
    row = dict.fromkeys(DONE.schema.names, 1)
    spark.answers(asdict(Summary(rows=[row], uncleanable=1, objects_left=2)))
    done = run(data, "compact", "--yes", "--topic", "users", "--io-bytes-per-s", "9", "-o", "json")
    assert json.loads(done.stdout) == [row]
    assert spark.args == ["compaction", "--topic=users", "--grace-s=300.0", "--io-bytes-per-s=9"]
    assert done.exit_code == 1
    assert "2 replaced objects could not be deleted" in done.stderr


@pytest.mark.parametrize(("code", "told"), [(1, ""), (3, "exit code 3")])
def test_a_job_that_fails_is_said_once(
    spark: Spark, data: DataDir, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    monkeypatch.setenv("TEST_CODE", str(code))
    done = run(data, "sql", "select 1")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert ("exit code" in done.stderr) is bool(told)
    assert told in done.stderr


def test_without_sparks_environment_it_is_said_how_to_make_it(
    data: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFSCALE_SPARK_PYTHON", str(tmp_path / "nowhere"))
    done = run(data, "sql", "select 1")
    assert done.exit_code == 1
    assert "tools/setup.sh spark" in done.stderr
