"""Records by the command, at a cluster of real processes: they are copied without a loss, found by time, and deleted.

Law: `consume --output json | produce --input json` makes a topic with the same records in the same partitions.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.commands import COMMAND_TIMEOUT_S, Commands

EIGHT_MS, NINE_MS = 1_769_846_400_000, 1_769_850_000_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("records") / "data", scale={})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def kafscale(cluster: Cluster) -> Commands:
    return Commands(cluster.data_dir)


def shell(kafscale: Commands, line: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `kafscale` is this command."""
    script = f'set -o pipefail; kafscale() {{ {" ".join(KAFSCALE)} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script],
        env=kafscale.environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def records(kafscale: Commands, line: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in kafscale.ok(f"consume {line} --exit --output json").splitlines()]


def content(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ordered = sorted(found, key=lambda each: (each["partition"], each["offset"]))
    return [{name: each[name] for name in each if name not in ("topic", "offset")} for each in ordered]


SENT: list[dict[str, Any]] = [
    {"partition": 0, "timestamp": EIGHT_MS, "key_base64": "//4A", "value": "größer\n", "headers": []},
    {"partition": 0, "timestamp": NINE_MS, "key": "gone", "value": None, "headers": []},
    {
        "partition": 2,
        "timestamp": EIGHT_MS,
        "key": None,
        "value_base64": "gA==",
        "headers": [
            {"key": "h", "value": "1"},
            {"key": "h", "value_base64": "gA=="},
            {"key": "n", "value": None},
        ],
    },
    {"partition": 2, "timestamp": NINE_MS, "key": "", "value": "", "headers": []},
]


def make(kafscale: Commands, topic: str) -> None:
    kafscale.ok(f"topics create {topic} --partitions 3")
    kafscale.ok(f"produce {topic} --input json", stdin="".join(json.dumps(each) + "\n" for each in SENT))


def test_a_topic_is_copied_by_a_pipe(kafscale: Commands) -> None:
    make(kafscale, "orders")
    kafscale.ok("topics create copy --partitions 3")
    done = shell(
        kafscale, "kafscale consume orders --exit --output json | kafscale produce copy --input json"
    )
    assert (done.returncode, done.stderr) == (0, "4 records acknowledged\n")
    assert content(records(kafscale, "orders")) == SENT
    assert content(records(kafscale, "copy")) == SENT
    assert len(records(kafscale, "-r ^(orders|copy)$")) == 2 * len(SENT)


def test_records_are_found_by_time_and_deleted_before_it(kafscale: Commands) -> None:
    make(kafscale, "timed")
    assert [row["offset"] for row in kafscale.rows("offsets timed --at 2026-01-31T09:00")] == [1, 0, 1]
    assert [each["timestamp"] for each in records(kafscale, "timed -o 2026-01-31T08:30")] == [NINE_MS] * 2
    assert [each["timestamp"] for each in records(kafscale, "timed -u 2026-01-31T08:30")] == [EIGHT_MS] * 2
    assert records(kafscale, "timed -o @2026-02-01") == []
    line = "delete-records timed --before 2026-01-31T08:30"
    assert "nobody can be asked here" in kafscale.refused(line, 2)
    plan = json.loads(kafscale.ok(f"{line} --dry-run --output json"))["plan"]
    assert [(row["partition"], row["records"]) for row in plan] == [(0, 1), (2, 1)]
    assert len(records(kafscale, "timed")) == len(SENT), "a dry run deletes nothing"
    kafscale.ok(f"{line} -p 0,2 --yes")
    assert [row["start"] for row in kafscale.rows("topics describe timed")] == [1, 0, 1]
    assert [each["timestamp"] for each in records(kafscale, "timed")] == [NINE_MS] * 2


def test_a_reader_waits_for_its_topic_and_one_that_leaves_is_no_error(kafscale: Commands) -> None:
    reader = subprocess.Popen(
        [*KAFSCALE, "consume", "later", "--count", "1"],
        env=kafscale.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert reader.stderr is not None
        assert reader.stderr.readline().startswith("topic 'later' does not exist")
        kafscale.ok("produce later", stdin="first\nsecond\n")
        assert reader.communicate(timeout=COMMAND_TIMEOUT_S) == ("first\n", "")
    finally:
        reader.kill()
        reader.communicate()
    many = shell(kafscale, "seq 100000 | kafscale produce many -p 0 && kafscale consume many | head -2")
    assert (many.returncode, many.stdout) == (0, "1\n2\n"), many.stderr


def test_who_serves_and_whether_all_agrees(cluster: Cluster, kafscale: Commands) -> None:
    (door,) = kafscale.rows("brokers")
    assert f"{door['host']}:{door['port']}" == cluster.bootstrap
    assert (door["cluster_id"], door["controller"]) == (
        json.loads(kafscale.ok("status -o json"))["cluster_id"],
        True,
    )
    checked = json.loads(kafscale.ok("fsck -o json"))
    assert (checked["clean"], checked["problems"]) == (True, [])
    assert kafscale.ok("fsck -o csv") == "where,what\n"


def test_a_profile_is_enough(cluster: Cluster, kafscale: Commands, tmp_path: Path) -> None:
    home = {"KAFSCALE_CONFIG_HOME": str(tmp_path)}
    assert kafscale.run(f"profile create here -b {cluster.bootstrap}", **home).returncode == 0
    listed = kafscale.run("--profile here brokers --output json", **home)
    assert json.loads(listed.stdout)[0]["port"] == int(cluster.bootstrap.rpartition(":")[2])
