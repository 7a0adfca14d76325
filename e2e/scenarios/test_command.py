"""The `kafscale` command against a cluster of real processes, as a person or a script uses it.

Laws: JSON has the same data as a table, under stable names. A failure is one sentence and exit code 1. A usage error is
exit code 2.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafscale.operations.services import ROLES
from kafscale.runtime.ports import free_port
from kafscale.wire.errors import ErrorCode

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.commands import Commands
from e2e.harness.group_members import Classic, commit
from e2e.harness.inside import get
from e2e.harness.raw import Wire
from e2e.harness.services import until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command.md"
WAIT_S = 60.0
RECORDS = 30
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("command") / "data"
    cluster = Cluster(data_dir=folder, scale={"produce": 2, "fetch": 2})
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def kafscale(cluster: Cluster) -> Commands:
    return Commands(cluster.data_dir)


def fill(kafscale: Commands, topic: str, *, partitions: int = 2) -> None:
    """RECORDS records in partition 0."""
    kafscale.ok(f"topics create {topic} --partitions {partitions}")
    kafscale.ok(f"produce {topic} -p 0", stdin="".join(f"record {n}\n" for n in range(RECORDS)))


def test_a_topic_from_its_making_to_its_end(kafscale: Commands) -> None:
    kafscale.ok("topics create life -p 2 -c retention.ms=1000000")
    assert "life" in kafscale.ok("topics list")
    listed = {row["topic"]: row for row in kafscale.rows("topics list")}
    assert listed["life"]["partitions"] == 2
    assert len(listed["life"]["topic_id"]) == 32
    kafscale.ok("produce life -p 1", stdin="one\ntwo\n")
    described = kafscale.rows("topics describe life")
    assert [(row["topic"], row["partition"], row["start"], row["end"]) for row in described] == [
        ("life", 0, 0, 0),
        ("life", 1, 0, 2),
    ]
    assert list(described[0]) == documented("topics describe")
    assert list(listed["life"]) == documented("topics list")
    table = kafscale.ok("topics describe life").splitlines()
    assert table[0].split() == list(described[0])
    assert table[2].split() == [str(value) for value in described[1].values()]
    kafscale.ok("topics alter life -p 3")
    assert len(kafscale.rows("topics describe life")) == 3
    planned = json.loads(kafscale.ok("topics delete life --dry-run -o json"))
    assert planned["plan"] == [{"topic": "life", "partitions": 3, "records": 2}]
    assert "nobody can be asked here" in kafscale.refused("topics delete life", 2)
    assert kafscale.refused("topics delete life nix --yes").endswith("what does; nothing was deleted")
    assert "life" in {row["topic"] for row in kafscale.rows("topics list")}
    kafscale.ok("topics delete life --yes")
    assert "life" not in {row["topic"] for row in kafscale.rows("topics list")}


def test_settings_of_a_topic(kafscale: Commands) -> None:
    kafscale.ok("topics create tuned")
    assert kafscale.rows("configs describe tuned") == []
    kafscale.ok("configs set tuned retention.ms=1000 max.message.bytes=2000")
    kafscale.ok("configs unset tuned retention.ms")
    assert list(kafscale.rows("configs describe tuned")[0]) == documented("configs describe")
    assert kafscale.rows("configs describe tuned") == [
        {"key": "max.message.bytes", "value": "2000", "source": "topic", "read_only": False}
    ]
    every = {row["key"]: row for row in kafscale.rows("configs describe tuned --all")}
    assert (every["retention.ms"]["value"], every["retention.ms"]["source"]) == ("604800000", "default")


def test_a_group_that_reads_and_one_that_is_moved(cluster: Cluster, kafscale: Commands) -> None:
    fill(kafscale, "read")
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "client.id": "biller"}
    )
    try:
        consumer.subscribe(["read"])
        until(
            "the group has its partitions",
            lambda: polled(consumer) and len(consumer.assignment()) == 2,
            WAIT_S,
        )
        consumer.commit(offsets=[TopicPartition("read", 0, 10)], asynchronous=False)
        rows = kafscale.rows("groups describe billing")
        assert [(row["stable_end"], row["stable_lag"]) for row in rows] == [
            (row["end"], row["lag"]) for row in rows
        ]
        assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
            (0, 10, RECORDS, RECORDS - 10),
            (1, None, 0, None),
        ]
        assert list(rows[0]) == documented("groups describe")
        assert {(row["group"], row["state"], row["client"]) for row in rows} == {
            ("billing", "Stable", "biller")
        }
        a_group_with_members_is_left_alone(kafscale)
    finally:
        consumer.close()
    assert {"group": "billing", "type": "classic", "state": "Empty", "protocol": "consumer"} in kafscale.rows(
        "groups list"
    )
    planned = json.loads(kafscale.ok("groups reset-offsets billing -t read --to 20 --dry-run -o json"))
    moves = [(row["partition"], row["before"], row["after"]) for row in planned["plan"]]
    assert moves == [(0, 10, 20), (1, None, 0)]
    assert planned["losses"] == [loss("billing", 0, 10, 20, 10)]
    assert kafscale.rows("groups describe billing")[0]["committed"] == 10, "a dry run moves nothing"
    moved = kafscale.rows("groups reset-offsets billing -t read -p 0 --to 20 --yes")
    assert list(moved[0]) == documented("groups reset-offsets")
    assert kafscale.ok("consume read -g billing --exit --count 1").strip() == "record 20"
    kafscale.ok("groups reset-offsets newcomer -t read --to 5 --yes")
    assert kafscale.rows("groups describe newcomer")[0]["committed"] == 5, "a group comes into being by it"
    deleted(kafscale)


def a_group_with_members_is_left_alone(kafscale: Commands) -> None:
    sentence = kafscale.refused("groups reset-offsets billing -t read --to latest -o csv --yes")
    assert sentence.endswith("group 'billing' has members now; stop its consumers first")
    assert "stop its consumers first" in kafscale.refused("groups delete billing --yes")
    planned = json.loads(kafscale.ok("topics delete read --dry-run -o json"))
    assert planned["losses"] == [loss("billing", 0, 10, RECORDS, RECORDS - 10)]


def deleted(kafscale: Commands) -> None:
    """Two groups; before, none of them together with one that does not exist."""
    assert kafscale.refused("groups delete billing nix --yes").endswith("what does; nothing was deleted")
    going = json.loads(kafscale.ok("groups delete billing --dry-run -o json"))["plan"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in going] == [(0, 21, RECORDS - 21)]
    kafscale.ok("groups delete billing newcomer --yes")
    assert "billing" not in {row["group"] for row in kafscale.rows("groups list")}


def loss(group: str, partition: int, committed: int, start: int, records: int) -> dict[str, Any]:
    """A row of what a group has not read of topic `read`."""
    place = {"group": group, "topic": "read", "partition": partition}
    return {**place, "committed": committed, "start": start, "records": records}


def polled(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return True


def test_a_group_of_the_new_protocol_is_described_too(cluster: Cluster, kafscale: Commands) -> None:
    fill(kafscale, "read-anew", partitions=1)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "modern",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe(["read-anew"])
        until("the group has its partition", lambda: polled(consumer) and bool(consumer.assignment()), WAIT_S)
        (row,) = kafscale.rows("groups describe modern")
        assert (row["topic"], row["partition"], row["member"]) == ("read-anew", 0, consumer.memberid())
        listed = {each["group"]: each["type"] for each in kafscale.rows("groups list")}
        assert listed["modern"] == "consumer"
    finally:
        consumer.close()


def test_a_group_that_is_not_of_consumers_is_listed_and_described(
    cluster: Cluster, kafscale: Commands
) -> None:
    fill(kafscale, "configured", partitions=1)

    async def shown() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        wire = await Wire.open(cluster.bootstrap)
        member = Classic(wire, "workers", protocol_type="connect")
        assert await member.join() == ErrorCode.MEMBER_ID_REQUIRED
        assert await member.join() == ErrorCode.NONE
        assert await member.sync({member.member_id: b"tasks"}) == (ErrorCode.NONE, b"tasks")
        assert await commit(member, "configured", 10) == ErrorCode.NONE
        try:
            return (
                await asyncio.to_thread(kafscale.rows, "groups list"),
                await asyncio.to_thread(kafscale.rows, "groups describe workers"),
            )
        finally:
            wire.close()

    listed, described = asyncio.run(shown())
    assert {"group": "workers", "type": "classic", "state": "Stable", "protocol": "connect"} in listed
    assert [(row["committed"], row["lag"], row["client"]) for row in described] == [(10, RECORDS - 10, None)]


def test_a_segment_that_a_cluster_wrote_and_the_same_damaged(
    cluster: Cluster, kafscale: Commands, tmp_path: Path
) -> None:
    fill(kafscale, "dumped")
    kafscale.ok("settle dumped")
    folder = cluster.data_dir / "objects" / "default" / "dumped" / "0"
    shown: list[str] = []
    for path in sorted(folder.glob("*.kfs")):
        document = json.loads(kafscale.ok(f"dump {path} --records -o json"))
        assert list(document) == [*documented("dump"), "records"]
        assert document["problems"] == []
        assert document["index"]["entries"][0]["offset"] == document["header"]["base_offset"]
        assert {batch["crc"] for batch in document["batches"]} == {"right"}
        shown += [record["value"] for record in document["records"]]
    assert shown == [f"record {n}" for n in range(RECORDS)]
    damaged = tmp_path / path.name
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    damaged.write_bytes(data)
    done = kafscale.run(f"dump {damaged}")
    assert (done.returncode, done.stdout.count("PROBLEM")) == (1, 2), done.stdout
    assert "is damaged: 2 problems" in done.stderr


def test_the_cluster_at_a_glance(cluster: Cluster, kafscale: Commands) -> None:
    fill(kafscale, "glanced")
    seen = json.loads(kafscale.ok("status --output json"))
    assert (seen["namespace"], seen["serves"], seen["warnings"]) == ("default", True, [])
    assert list(seen) == documented("status")
    services = [row["service"] for row in seen["instances"]]
    assert services == ["frontdoor", "produce", "produce", "fetch", "fetch", "coordinator", "admin", "upkeep"]
    assert {row["health"] for row in seen["instances"]} == {"ready"}
    owned = [row["owns"] for row in seen["instances"] if row["service"] == "produce"]
    assert sum(owned) == seen["partitions_owned"] >= 1
    door, coordinator, upkeep = (seen["instances"][number] for number in (0, -3, -1))
    assert door["address"] == cluster.bootstrap
    assert coordinator["owns"] == 64
    assert all(get(row["metrics"], "/metrics")[0] == 200 for row in seen["instances"])
    assert upkeep["works"]
    assert all(row["requests_per_s"] is not None for row in seen["instances"][:-1])
    by_etcd = json.loads(kafscale.ok(f"status --etcd {cluster.inside().etcd} --output json"))
    assert by_etcd["cluster_id"] == seen["cluster_id"]


def test_the_cluster_looks_as_the_page_shows_it(kafscale: Commands) -> None:
    fill(kafscale, "shown")
    (shown,) = re.findall(r"```\n(KafScale '.*?)```", PAGE.read_text(), re.DOTALL)
    assert shape(kafscale.ok("status --interval 0.1")) == shape(shown)


def shape(drawn: str) -> list[str]:
    """Masks what differs between clusters: numbers, plurals, the cluster's id, widths of columns."""
    lines = re.sub(r"cluster \S+", "cluster ID", drawn.strip())
    lines = re.sub(r"unix://\S+", "unix://PATH", lines)
    lines = re.sub(r"(?:[\d.,]+[dhms] ?)+(?= |$)", "N ", lines, flags=re.MULTILINE)
    lines = re.sub(r"[\d.,]*\d[KMG]?", "N", lines)
    lines = re.sub(r"(N[. N:]*) (topic|partition|group|connection|slot)s?\b", r"\1 \2s", lines)
    return [" ".join(line.split()) for line in lines.splitlines()]


def documented(command: str) -> list[str]:
    """The names of the fields that the page lists for a command."""
    _, _, table = PAGE.with_name("command-output.md").read_text().partition("| command | JSON |")
    (row,) = re.findall(rf"^\| `{command}` \| (.*) \|$", table, re.MULTILINE)
    return re.findall(r"`(\w+)`", re.sub(r"\(.*?\)|;.*|, and .*", "", row))


def test_a_service_that_hangs_is_reported(cluster: Cluster, kafscale: Commands) -> None:
    cluster.signal("coordinator", signal.SIGSTOP)
    try:
        done = kafscale.run("status --output json")
    finally:
        cluster.signal("coordinator", signal.SIGCONT)
    seen = json.loads(done.stdout)
    assert (done.returncode, seen["serves"]) == (1, False)
    assert seen["warnings"][0] == (
        "no coordinator is ready: consumer groups make no progress; start one with `kafscale serve coordinator`"
    )
    until("all are ready again", lambda: kafscale.run("status").returncode == 0, WAIT_S)


def test_watching_draws_again_and_again_until_ctrl_c(kafscale: Commands, tmp_path: Path) -> None:
    with (tmp_path / "drawn").open("wb") as drawn:
        watch = ["status", "--watch", "--interval", "0.1", "--data-dir", str(kafscale.data_dir)]
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *KAFSCALE, *watch],  # the tests may run where it is ignored
            stdout=drawn,
            stderr=subprocess.STDOUT,
            env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "120", "LINES": "40"},
        )
    try:
        text = tmp_path / "drawn"
        until("it has drawn thrice", lambda: text.read_text().count("rates over the last") >= 3, WAIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0, text.read_text()
        assert "Warning" not in text.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("topics describe nix", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        ("topics delete nix --yes", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        ("topics alter nix -p 3", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        ("configs describe nix", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        ("groups describe nix", "group 'nix' does not exist; `kafscale groups list` shows what does"),
        ("groups delete nix --yes", "group 'nix' does not exist; `kafscale groups list` shows what does"),
        ("topics create a/b", "topic 'a/b': the topic name 'a/b' holds characters other than ASCII letters"),
        ("topics create new -c nix=1", "topic 'new': Unknown topic config name: nix (INVALID_CONFIG)"),
    ],
)
def test_what_is_not_there_or_not_allowed_is_a_sentence(kafscale: Commands, line: str, sentence: str) -> None:
    assert kafscale.refused(line).startswith(sentence)


@pytest.mark.parametrize("line", ["topics list", "configs describe x", "groups list"])
def test_where_no_server_is_the_sentence_says_what_to_do(tmp_path: Path, line: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    sentence = Commands(tmp_path).refused(f"{line} -b {address}")
    assert sentence == (
        f"no Kafka server answers at {address} (Connection refused); "
        "start one with `kafscale up`, or name another with --bootstrap-server"
    )


@pytest.mark.parametrize("role", ROLES)
def test_each_service_is_served_and_stops_on_sigterm(cluster: Cluster, tmp_path: Path, role: str) -> None:
    http = f"127.0.0.1:{free_port()}"
    flags = ["--etcd-endpoints", cluster.inside().etcd, "--object-dir", str(cluster.data_dir / "objects")]
    flags += ["--http-listen", http]
    if role == "frontdoor":
        flags += ["--listeners", f"PLAINTEXT://127.0.0.1:{free_port()}"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*KAFSCALE, "serve", role, *flags], stdout=log, stderr=log)
    try:
        until(f"{role} is ready: {tmp_path / 'log'}", lambda: answers(process, http), WAIT_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()


def answers(process: subprocess.Popen[bytes], http: str) -> bool:
    assert process.poll() is None
    try:
        return get(http, "/readyz")[0] == 200
    except OSError:
        return False
