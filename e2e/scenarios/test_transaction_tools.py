"""kafka-transactions.sh against KafScale and against Apache Kafka, side by side, and `kafscale transactions`.

Laws: with the same transactions the tool prints the same lines and errors for both, if ids of producers, epochs of
coordinators and times are masked; only a filter by duration differs. `kafscale transactions` reports the same facts.
A transaction that no coordinator knows is found, and both tools abort it. `abort` of neither tool aborts one that a
coordinator of KafScale knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.slots import slot_of

from e2e.harness.apache import ApacheKafka, kafka_version
from e2e.harness.cluster import Cluster
from e2e.harness.commands import Commands
from e2e.harness.kafka_tools import Answer, Tools, require_java, tools
from e2e.harness.services import until
from e2e.harness.transactional import stable_end

TOPICS = ("orders", "lost-1", "lost-2")
OPEN, DONE, STOPPED = "open", "done", "stopped"
WAIT_S = 60.0
TOOL = "kafka-transactions"
BOTH = (
    "list",
    "list --duration-filter 600000",
    "list --transactional-id-pattern o.*",
    "describe --transactional-id open",
    "describe --transactional-id done",
    "describe --transactional-id nobody",
    "describe-producers --topic orders --partition 0",
    "find-hanging --topic orders --max-transaction-timeout 0",
    "find-hanging --topic orders --partition 0",
    "find-hanging",
    "abort --topic orders --partition 0 --start-offset 1",
    "abort --topic orders --partition 0",
)
MASKED = {
    "ProducerId",
    "LatestCoordinatorEpoch",
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
}
"""Columns whose values differ between two clusters. Whether there is one does not."""
NO_VALUE = "None"

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True, slots=True)
class Stage:
    cluster: Cluster
    commands: Commands
    kafscale: Tools
    kafka: Tools


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require_java()
    folder = tmp_path_factory.mktemp("transaction-tools")
    cluster = Cluster(data_dir=folder / "kafscale")
    kafka = ApacheKafka(
        folder / "kafka",
        flush_before_ack=False,
        heap="512m",
        settings={"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3},
    )
    with ExitStack() as stack:
        stack.callback(cluster.kill)
        cluster.start()
        stack.callback(kafka.stop)
        kafka.start()
        held = [prepared(each.bootstrap) for each in (cluster, kafka)]
        sides = [
            stack.enter_context(tools(kafka_version(), each.bootstrap, folder)) for each in (cluster, kafka)
        ]
        yield Stage(cluster, Commands(cluster.data_dir), *sides)
        del held


def prepared(bootstrap: str) -> Producer:
    """A topic with one transaction that is over and one that is open. Its producer keeps it open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in TOPICS]).values():
        future.result(WAIT_S)
    done = begun(bootstrap, DONE, TOPICS[0])
    done.commit_transaction(WAIT_S)
    return begun(bootstrap, OPEN, TOPICS[0])


def begun(bootstrap: str, id_: str, topic: str) -> Producer:
    """A producer with one record in its open transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": id_,
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def masked(answer: Answer) -> list[str]:
    """Sorted lines: the first is the header of a table, or all of them are an error."""
    lines = [[cell.strip() for cell in line.split("\t")] for line in answer.text.splitlines() if line.strip()]
    hidden = {at for at, name in enumerate(lines[0]) if name in MASKED} if lines else set()
    rows = [
        [f"<{at}>" if at in hidden and cell != NO_VALUE else cell for at, cell in enumerate(line)]
        for line in lines
    ]
    return sorted(" ".join(row) for row in rows)


@pytest.mark.parametrize("line", BOTH)
def test_the_tool_prints_the_same(stage: Stage, line: str) -> None:
    ours, theirs = (side.run(f"{TOOL} {line}") for side in (stage.kafscale, stage.kafka))
    assert masked(ours) == masked(theirs), (ours.text, theirs.text)


def test_a_duration_leaves_out_transactions_that_are_over_which_kafka_lists(stage: Stage) -> None:
    ours, theirs = (
        columns(side.run(f"{TOOL} list --duration-filter 0")) for side in (stage.kafscale, stage.kafka)
    )
    assert {row["TransactionalId"] for row in ours} == {OPEN}
    assert {row["TransactionalId"] for row in theirs} == {OPEN, DONE}


def columns(answer: Answer) -> list[dict[str, str]]:
    """The rows of the tool's table, by the names of its columns."""
    assert answer.exit == 0, answer.text
    names, *lines = [line.split() for line in answer.out.splitlines() if line.strip()]
    return [dict(zip(names, line, strict=True)) for line in lines]


def test_our_command_lists_the_same(stage: Stage) -> None:
    theirs = columns(stage.kafscale.run(f"{TOOL} list"))
    ours = stage.commands.rows("transactions list")
    assert [{**row, "producer_id": str(row["producer_id"])} for row in ours] == [
        {
            "transactional_id": row["TransactionalId"],
            "coordinator": int(row["Coordinator"]),
            "producer_id": row["ProducerId"],
            "transaction_state": row["TransactionState"],
        }
        for row in sorted(theirs, key=lambda row: row["TransactionalId"])
    ]
    states = {row["transactional_id"]: row["transaction_state"] for row in ours}
    assert states == {OPEN: "Ongoing", DONE: "CompleteCommit"}
    assert [
        row["transactional_id"] for row in stage.commands.rows("transactions list --duration-filter 0")
    ] == [OPEN]
    assert stage.commands.rows("transactions list --duration-filter 600000") == []
    assert len(stage.commands.rows("transactions list --transactional-id-pattern d.*")) == 1


def test_our_command_describes_the_same(stage: Stage) -> None:
    (theirs,) = columns(stage.kafscale.run(f"{TOOL} describe --transactional-id {OPEN}"))
    (ours,) = stage.commands.rows(f"transactions describe --transactional-id {OPEN}")
    assert (
        ours["coordinator_id"],
        ours["producer_id"],
        ours["producer_epoch"],
        ours["transaction_state"],
        ours["transaction_timeout_ms"],
        ours["topic_partitions"],
    ) == (
        int(theirs["CoordinatorId"]),
        int(theirs["ProducerId"]),
        int(theirs["ProducerEpoch"]),
        theirs["TransactionState"],
        int(theirs["TransactionTimeoutMs"]),
        [theirs["TopicPartitions"]],
    )
    assert stage.commands.refused("transactions describe --transactional-id nobody") == (
        "transactional id 'nobody' does not exist; `kafscale transactions list` shows what does"
    )


def test_our_command_describes_producers_the_same(stage: Stage) -> None:
    place = "--topic orders --partition 0"
    theirs = columns(stage.kafscale.run(f"{TOOL} describe-producers {place}"))
    ours = stage.commands.rows(f"transactions describe-producers {place}")
    assert len(ours) == 2
    shown = {"None": None}
    for row, other in zip(ours, sorted(theirs, key=lambda each: int(each["ProducerId"])), strict=True):
        start = other["CurrentTransactionStartOffset"]
        assert (str(row["producer_id"]), str(row["producer_epoch"]), str(row["last_sequence"])) == (
            other["ProducerId"],
            other["ProducerEpoch"],
            other["LastSequence"],
        )
        assert row["current_transaction_start_offset"] == (None if start in shown else int(start))


def test_a_transaction_that_a_coordinator_knows_does_not_hang_and_is_not_aborted(stage: Stage) -> None:
    assert stage.commands.rows("transactions find-hanging --max-transaction-timeout 0") == []
    start = open_at(stage, TOPICS[0])
    line = f"--topic orders --partition 0 --start-offset {start}"
    assert "a coordinator knows this transaction" in stage.commands.refused(
        f"transactions abort {line} --yes"
    )
    assert stage.kafscale.run(f"{TOOL} abort {line}").exit == 1
    assert open_at(stage, TOPICS[0]) == start


def test_a_transaction_under_way_is_terminated(stage: Stage) -> None:
    producer = begun(stage.cluster.bootstrap, STOPPED, TOPICS[0])
    force = f"transactions forceTerminateTransaction --transactionalId {STOPPED}"
    (before,) = stage.commands.rows(f"transactions describe --transactional-id {STOPPED}")
    stage.commands.ok(f"{force} --dry-run")
    assert (
        stage.commands.rows(f"transactions describe --transactional-id {STOPPED}")[0]["producer_epoch"]
        == (before["producer_epoch"])
    )
    stage.commands.ok(f"{force} --yes")
    (after,) = stage.commands.rows(f"transactions describe --transactional-id {STOPPED}")
    assert after["transaction_state"] != "Ongoing"
    assert after["transaction_timeout_ms"] == before["transaction_timeout_ms"]
    assert "has no transaction under way" in stage.commands.refused(f"{force} --yes")
    del producer


@pytest.mark.parametrize("by", ["kafka", "kafscale", "kafscale by producer"])
def test_a_transaction_whose_id_was_lost_is_found_and_aborted(stage: Stage, by: str) -> None:
    topic = TOPICS[1] if by == "kafka" else TOPICS[2]
    id_ = f"lost-{by.replace(' ', '-')}"
    producer = begun(stage.cluster.bootstrap, id_, topic)
    lose(stage.cluster, id_)
    start = open_at(stage, topic)
    look = f"find-hanging --topic {topic} --max-transaction-timeout 0"
    (ours,) = stage.commands.rows(f"transactions {look}")
    (theirs,) = columns(stage.kafscale.run(f"{TOOL} {look}"))
    facts = [
        ours["topic"],
        ours["partition"],
        ours["producer_id"],
        ours["producer_epoch"],
        ours["start_offset"],
    ]
    named = ("Topic", "Partition", "ProducerId", "ProducerEpoch", "StartOffset")
    assert list(map(str, facts)) == [theirs[name] for name in named]
    assert start is not None
    assert ours["start_offset"] == start
    place = f"abort --topic {topic} --partition 0"
    match by:
        case "kafka":
            done = stage.kafscale.run(f"{TOOL} {place} --start-offset {start}")
            assert (done.exit, done.text) == (0, "")
        case "kafscale":
            stage.commands.ok(f"transactions {place} --start-offset {start} --yes")
        case _:
            epoch = ours["coordinator_epoch"] or 0
            words = f"--producer-id {ours['producer_id']} --producer-epoch {ours['producer_epoch']}"
            stage.commands.ok(f"transactions {place} {words} --coordinator-epoch {epoch} --yes")
    assert open_at(stage, topic) is None
    assert stage.commands.rows(f"transactions {look}") == []
    until("the last stable offset moves", lambda: stable_end(stage.cluster.bootstrap, topic) > start, WAIT_S)
    del producer


def open_at(stage: Stage, topic: str) -> int | None:
    """Where the open transaction of the partition begins."""
    rows: list[dict[str, Any]] = stage.commands.rows(
        f"transactions describe-producers --topic {topic} --partition 0"
    )
    starts = [row["current_transaction_start_offset"] for row in rows]
    return next((start for start in starts if start is not None), None)


def lose(cluster: Cluster, id_: str) -> None:
    """Deletes the record of the id. The coordinator forgets it with its death."""
    inside = cluster.inside()

    async def delete(client: EtcdClient) -> None:
        await client.delete(inside.keys.transaction(slot_of(id_), id_))

    inside._ask(delete)
    cluster.kill_one("coordinator", 0)
