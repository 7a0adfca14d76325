"""kafka-consumer-groups.sh against KafScale and against Apache Kafka, side by side.

Law: with the same topics, records and groups the tool prints the same lines and errors for both, if ids, hosts and
ports are masked. One group has a live member of the classic protocol, one has a live member of the new protocol, and
one has offsets and no member.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import repeat
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.harness.apache import kafka_version
from e2e.harness.kafka_tools import require_java, tools
from e2e.harness.services import until
from e2e.harness.side_by_side import keep, masked, side_by_side

TOOL = "kafka-consumer-groups"
TOPICS = ("orders", "bills")
PARTITIONS = 2
RECORDS = 20
JOINED_S = 60.0

COMMANDS = (
    "--list",
    "--list --state",
    "--list --state Empty",
    "--list --type",
    "--list --type consumer",
    "--list --state Nonsense",
    "--describe --group empty",
    "--describe --group empty --offsets",
    "--describe --group empty --offsets --verbose",
    "--describe --group empty --members",
    "--describe --group empty --state",
    "--describe --group empty --state --verbose",
    "--describe --group live",
    "--describe --group live --offsets --verbose",
    "--describe --group live --members",
    "--describe --group live --members --verbose",
    "--describe --group live --state",
    "--describe --group live --state --verbose",
    "--describe --group modern",
    "--describe --group modern --offsets --verbose",
    "--describe --group modern --members",
    "--describe --group modern --members --verbose",
    "--describe --group modern --state",
    "--describe --group modern --state --verbose",
    "--describe --all-groups --state",
    "--describe --all-groups --offsets",
    "--describe --group unknown",
    "--describe --group unknown --members",
    "--describe --group unknown --state",
    "--reset-offsets --group empty --topic orders --to-earliest --dry-run",
    "--describe --group empty --offsets  after the dry run",
    "--reset-offsets --group empty --topic orders --to-earliest --execute",
    "--describe --group empty --offsets  after a reset to the earliest",
    "--reset-offsets --group empty --topic orders:0 --shift-by 3 --dry-run",
    "--reset-offsets --group empty --topic orders:0 --shift-by 3 --execute",
    "--describe --group empty --offsets  after a shift",
    "--reset-offsets --group empty --all-topics --shift-by -100 --dry-run",
    "--reset-offsets --group empty --all-topics --to-latest --execute",
    "--reset-offsets --group empty --all-topics --to-current --dry-run --export",
    "--reset-offsets --group empty --topic bills:1 --to-offset 4 --execute",
    "--reset-offsets --group empty --topic bills --to-datetime 2020-01-01T00:00:00.000 --dry-run",
    "--reset-offsets --group empty --topic missing --to-earliest --dry-run",
    "--reset-offsets --group live --topic orders --to-earliest --dry-run",
    "--reset-offsets --group live --topic orders --to-earliest --execute",
    "--reset-offsets --group modern --topic orders --to-earliest --execute",
    "--reset-offsets --group fresh --topic orders --to-earliest --execute",
    "--describe --group fresh --offsets",
    "--describe --group fresh --state",
    "--list --type --state  with a group of offsets alone",
    "--delete-offsets --group live --topic orders",
    "--delete-offsets --group modern --topic orders",
    "--delete-offsets --group live --topic bills",
    "--delete-offsets --group unknown --topic orders",
    "--delete-offsets --group empty --topic missing",
    "--delete-offsets --group empty --topic bills",
    "--describe --group empty --offsets  after offsets were deleted",
    "--delete-offsets --group empty --topic bills:0  that are gone",
    "--delete --group live",
    "--delete --group modern",
    "--delete --group unknown",
    "--delete --group empty --group live",
    "--delete --group fresh",
    "--delete --all-groups",
    "--list  in the end",
)
"""The commands in order. Words after two spaces distinguish a command from an equal earlier one."""

pytestmark = pytest.mark.timeout(600)


@contextmanager
def live_member(bootstrap: str, group: str, protocol: str) -> Iterator[None]:
    """A member with all partitions of the first topic, and its offsets."""
    settings: dict[str, str | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": "the-client",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPICS[0]])
    try:
        until(f"{group} has its partitions", lambda: _has_all(consumer), JOINED_S)
        consumer.commit(
            offsets=[TopicPartition(TOPICS[0], n, 3 + n) for n in range(PARTITIONS)], asynchronous=False
        )
        yield
    finally:
        consumer.close()


def _has_all(consumer: Consumer) -> bool:
    consumer.poll(0.1)
    return len(consumer.assignment()) == PARTITIONS


def fill(bootstrap: str) -> None:
    """Topics with the same records, and offsets of a group without members."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS]).values():
        done.result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in TOPICS:
        for n in range(RECORDS):
            producer.produce(topic, str(n), partition=n % PARTITIONS)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "empty", "enable.auto.commit": False})
    offsets = [TopicPartition(topic, n, 5 + n) for topic in TOPICS for n in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def outputs(bootstrap: str, folder: Path) -> dict[str, str]:
    """Command -> what the tool prints, all in one JVM, while the groups' members live."""
    fill(bootstrap)
    with ExitStack() as stack:
        stack.enter_context(live_member(bootstrap, "live", "classic"))
        stack.enter_context(live_member(bootstrap, "modern", "consumer"))
        jvm = stack.enter_context(tools(kafka_version(), bootstrap, folder))
        answers = {command: jvm.run(f"{TOOL} {command.split('  ')[0]}") for command in COMMANDS}
    return {command: f"{answer.out}exit {answer.exit}" for command, answer in answers.items()}


Said = dict[str, str]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, Said]]:
    """The tool's output for KafScale and for Apache Kafka."""
    require_java()
    folder = tmp_path_factory.mktemp("groups")
    with side_by_side(folder) as both, ThreadPoolExecutor() as pool:
        kafscale, kafka = pool.map(outputs, both, repeat(folder))
        for name, found in (("kafscale", kafscale), ("kafka", kafka)):
            keep(tmp_path_factory.getbasetemp() / f"group-tools-{name}.txt", found)
        yield kafscale, kafka


@pytest.mark.parametrize("command", COMMANDS)
def test_the_tool_prints_what_it_prints_for_apache_kafka(said: tuple[Said, Said], command: str) -> None:
    kafscale, kafka = said
    assert masked(kafscale[command]) == masked(kafka[command])
