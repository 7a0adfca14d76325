"""A topic that is deleted and created again, while its newest records share bundles with those of another topic.

Laws: the new topic begins at offset 0. It holds no record that was acknowledged before the deletion, and every record
that was sent and acknowledged after the creation, at its offset. The other topic gets no error, and loses nothing. In
the end every slice is settled, no bundle is left, and `kafscale fsck` says clean.

Consumers and SQL are asked while the producer goes on. Each of its requests has a record for every partition of both
topics, so a bundle has slices of both.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import produce

from e2e.harness.bundles import BUNDLES, settle
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.inside import bundles_in
from e2e.harness.load import read_everything
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import PRODUCE_V, create
from e2e.harness.services import until

KEPT, AGAIN = "kept", "made-again"
PARTITIONS = 3
ROUNDS = 5
NEW_RECORDS = 20
SETTLE_MS, GRACE_MS = 3_000, 200
"""A bundle that is deleted because one of its topics is gone would still be needed for the other one."""
PAUSE_S = 0.01
ANSWER_S = 60.0
TIMESTAMP_MS = 1_700_000_000_000

pytestmark = pytest.mark.timeout(300)

Contents = Mapping[int, list[tuple[int, bytes]]]
"""partition -> offset and value of each record, in order"""


@dataclass(slots=True)
class Writer:
    """Numbers its requests. The value of a record is the number of its request. No request is sent twice."""

    bootstrap: str
    sent: int = 0
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)
    """number, partition and offset of each record in AGAIN"""
    kept: list[tuple[int, int, int]] = field(default_factory=list)
    """The same of KEPT."""
    refused: set[ErrorCode] = field(default_factory=set)
    """What AGAIN answered while it did not exist."""
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()

    def since(self, number: int) -> list[tuple[int, int, int]]:
        """What AGAIN has acknowledged of requests from this one on."""
        return [each for each in list(self.acknowledged) if each[0] >= number]

    def _write(self) -> None:
        try:
            with Raw.to(self.bootstrap) as raw:
                while not self._stop.wait(PAUSE_S):
                    number, self.sent = self.sent, self.sent + 1
                    self._note(number, raw.ask(ApiKey.PRODUCE, PRODUCE_V, [request(number)]))
        except (Closed, OSError) as failed:
            self.errors.append(repr(failed))

    def _note(self, number: int, answer: bytes) -> None:
        for topic in produce.decode_response(answer, PRODUCE_V).responses:
            for part in topic.partition_responses:
                code = ErrorCode(part.error_code)
                if topic.name == KEPT and code != ErrorCode.NONE:
                    self.errors.append(f"{number} in partition {part.index}: {code!r}")
                elif code != ErrorCode.NONE:
                    self.refused.add(code)
                else:
                    noted = self.kept if topic.name == KEPT else self.acknowledged
                    noted.append((number, part.index, part.base_offset))


def request(number: int) -> bytes:
    records = build_batch([Record(timestamp=TIMESTAMP_MS, value=b"%d" % number)])
    topics = [
        produce.ProduceRequestTopic(
            name=name,
            partition_data=[
                produce.ProduceRequestPartition(index=index, records=records) for index in range(PARTITIONS)
            ],
        )
        for name in (AGAIN, KEPT)
    ]
    message = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
    return b"".join(produce.encode_request(message, PRODUCE_V))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One produce instance. Two may own the two topics apart, and then no bundle is shared."""
    env = {
        **BUNDLES,
        "KAFSCALE_SETTLE_MS": str(SETTLE_MS),
        "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
    }
    cluster = Cluster(data_dir=tmp_path / "data", env=env)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def make(cluster: Cluster, topic: str) -> None:
    def made() -> bool:
        with Raw.to(cluster.bootstrap) as raw:
            code = create(raw, topic, partitions=PARTITIONS)
        assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), ErrorCode(code)
        return code == ErrorCode.NONE

    until(f"{topic} is created", made)


def delete(admin: AdminClient) -> None:
    admin.delete_topics([AGAIN], operation_timeout=ANSWER_S)[AGAIN].result(ANSWER_S)


def shared(cluster: Cluster) -> bool:
    """Whether a bundle holds slices of both topics, and their heads name it."""
    inside = cluster.inside()
    named = [
        {seg.bundle for head in inside.heads(topic).values() for seg in head.tail if seg.is_slice}
        for topic in (KEPT, AGAIN)
    ]
    return bool(named[0] & named[1])


def by_sql(cluster: Cluster, topic: str) -> Contents:
    text = f"""select partition, "offset", value from records where topic = '{topic}' order by all"""
    line = [*KAFSCALE, "sql", text, "--data-dir", str(cluster.data_dir), "--output", "json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    for row in json.loads(done.stdout):
        found[row["partition"]].append((row["offset"], row["value"].encode()))
    return found


def by_consumer(cluster: Cluster, topic: str) -> Contents:
    return read_everything(cluster.bootstrap, topic, PARTITIONS)


def check(contents: Contents, old: set[int], due: list[tuple[int, int, int]]) -> None:
    """`old`: numbers that were acknowledged before the deletion. `due`: what has to be there."""
    for partition, records in contents.items():
        assert [offset for offset, _ in records] == list(range(len(records))), f"partition {partition}"
        numbers = [int(value) for _, value in records]
        assert numbers == sorted(set(numbers)), f"partition {partition}: {numbers[:100]}"
        assert not old & set(numbers), f"partition {partition} has records of the old topic"
    missing = [
        (number, partition, offset)
        for number, partition, offset in due
        if contents[partition][offset : offset + 1] != [(offset, b"%d" % number)]
    ]
    assert missing == []


def made_again(cluster: Cluster, admin: AdminClient, writer: Writer, born: int) -> tuple[set[int], int]:
    """Deletes the topic that exists since request `born`, and creates it. Returns the numbers that were acknowledged
    before, and the first number after."""
    until("the topic has records", lambda: len(writer.since(born)) >= NEW_RECORDS)
    until("a bundle is shared", lambda: shared(cluster))
    old = {number for number, _, _ in writer.since(0)}
    delete(admin)
    make(cluster, AGAIN)
    after = writer.sent
    until("the new topic has records", lambda: len(writer.since(after)) >= NEW_RECORDS)
    return old, after


def test_a_topic_is_made_again_while_its_records_wait_in_bundles(cluster: Cluster) -> None:
    make(cluster, KEPT)
    make(cluster, AGAIN)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    writer = Writer(cluster.bootstrap)
    writer.start()
    born, old = 0, set[int]()
    for _ in range(ROUNDS):
        old, born = made_again(cluster, admin, writer, born)
        for ask in (by_consumer, by_sql):
            due = writer.since(born)
            check(ask(cluster, AGAIN), old, due)
    writer.stop()
    assert writer.errors == []
    assert writer.refused, "no request met a topic that did not exist"
    everything_is_there(cluster, writer, old, born)
    settle(cluster)
    until("no bundle is left", lambda: not bundles_in(cluster.open_store))
    everything_is_there(cluster, writer, old, born)
    checked = cluster.fsck()
    assert (checked.returncode, "clean" in checked.stdout) == (0, True), checked.stdout + checked.stderr
    assert cluster.logged_errors() == []


def everything_is_there(cluster: Cluster, writer: Writer, old: set[int], born: int) -> None:
    assert len(writer.kept) == writer.sent * PARTITIONS
    every = [(number, b"%d" % number) for number in range(writer.sent)]
    for ask in (by_consumer, by_sql):
        assert all(records == every for records in ask(cluster, KEPT).values())
        check(ask(cluster, AGAIN), old, writer.since(born))
