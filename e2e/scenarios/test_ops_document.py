"""The Go program of the ops document, unchanged, built with the franz-go that the client matrix is pinned to.

Law: every call that the program makes succeeds where it can, and is refused with Kafka's code where it cannot. It is
built to the letter but for its address, because port 9092 may be taken, and runs while a member is in `my-group` and
once more when it has left. The document's `kafka.admin.OffsetForLeaderEpochClient` is in no jar of Apache Kafka: the
program's OffsetForLeaderEpoch takes its place.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.clients import HERE as CLIENTS
from e2e.harness.clients import go_program, require
from e2e.harness.cluster import Cluster
from e2e.harness.services import until

DOCUMENT = CLIENTS / "go" / "testdata" / "ops_document.go"
ITS_ADDRESS = "127.0.0.1:9092"
RECORDS = 7
NON_EMPTY_GROUP, INVALID_PARTITIONS = 68, 37

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    env = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("document"), env=env)
    cluster.start()
    yield cluster
    cluster.stop()


def build(folder: Path, changes: Mapping[str, str]) -> Path:
    """The program, to the letter but for these changes, each of which must apply once."""
    text = DOCUMENT.read_text()
    for before, after in changes.items():
        assert text.count(before) == 1
        text = text.replace(before, after)
    source = folder / "ops_document.go"
    source.write_text(text)
    return go_program(source)


def run(program: Path) -> dict[str, str]:
    """What it prints: label -> the rest of its line, Go's notation of the answer's fields in order."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.partition(": ") for line in done.stdout.splitlines()]
    return {label: rest for label, _, rest in lines}


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> AdminClient:
    """After the topic was made and its first partition filled."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for n in range(RECORDS):
        producer.produce("orders", str(n), partition=0)
    assert producer.flush(60) == 0
    return admin


def test_the_documents_go_program_gets_the_answers_that_it_asks_for(
    cluster: Cluster, admin: AdminClient, tmp_path: Path
) -> None:
    require("the document's program", "go")
    program = build(tmp_path, {ITS_ADDRESS: cluster.bootstrap})
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "my-group"})
    consumer.subscribe(["orders"])
    until("my-group has its partitions", lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))

    while_used = run(program)
    assert while_used["groups"].startswith("[{my-group consumer Stable classic ")
    assert while_used["describe"].startswith("[{0 <nil> my-group Stable consumer range [{rdkafka-")
    assert while_used["offsets"].startswith("[{orders [{0 0 0 0 "), "epochs begin at 1: epoch 0 ends at 0"
    assert " DEFAULT_CONFIG " in while_used["configs"]
    assert while_used["alter"].startswith("[{0 <nil> TOPIC orders ")
    assert while_used["create partitions"].startswith("[{orders 0 <nil> ")
    assert while_used["delete groups"].startswith(f"[{{my-group {NON_EMPTY_GROUP} ")

    consumer.close()
    unused = run(program)
    assert unused["groups"] == "[]", "only Stable groups are asked for"
    assert unused["describe"].startswith("[{0 <nil> my-group Empty ")
    assert " DYNAMIC_TOPIC_CONFIG " in unused["configs"]
    assert unused["create partitions"].startswith(f"[{{orders {INVALID_PARTITIONS} ")
    assert unused["delete groups"].startswith("[{my-group 0 <nil> ")
    assert len(admin.list_topics("orders", timeout=60).topics["orders"].partitions) == 6


@pytest.mark.usefixtures("admin")
def test_the_end_of_an_epoch_with_records_is_the_end_of_the_log(cluster: Cluster, tmp_path: Path) -> None:
    require("the document's program", "go")
    first_epoch = {ITS_ADDRESS: cluster.bootstrap, ", LeaderEpoch: 0}": ", LeaderEpoch: 1}"}
    assert run(build(tmp_path, first_epoch))["offsets"].startswith(f"[{{orders [{{0 0 1 {RECORDS} ")
