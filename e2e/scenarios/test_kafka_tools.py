"""Apache Kafka's own command line tools, of 3.7 and of 4.3, against KafScale and an Apache Kafka beside it.

Law: what an operator does daily prints the same for both and exits with the same code, once ids and addresses are
masked: every example of the ops document, with its answer for what is missing or wrong. Where Apache Kafka has other
words for a refusal, both refuse with the same code and exception; what only KafScale does is judged by itself.

The document's `kafka.admin.OffsetForLeaderEpochClient` is in no jar of Apache Kafka, which is tested; the same is asked
with franz-go in test_ops_document.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from zipfile import ZipFile

import pytest
from confluent_kafka import Producer

from e2e.harness.beside import keep, masked, side_by_side
from e2e.harness.kafka_tools import VERSIONS, Answer, Tools, kafka_jars, require_java, tools

FIRST_TIMESTAMP = 1_700_000_000_000
KEYED = "a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n"
KEYS = "--property parse.key=true --property key.separator=:"
SHOWN = "--property print.key=true --property print.partition=true --property print.offset=true"
READ = "kafka-console-consumer --timeout-ms 60000"
READ_ORDERS = "kafka-console-consumer --topic orders --group my-group --from-beginning"
CONFIGS = "kafka-configs --alter --entity-type topics --entity-name"
DESCRIBE = "kafka-configs --describe --entity-type topics --entity-name"

TOPICS = (
    "kafka-topics --list  at first",
    "kafka-topics --create --topic orders --partitions 3 --replication-factor 1",
    "kafka-topics --create --topic orders",
    "kafka-topics --create --topic orders --if-not-exists",
    "kafka-topics --create --topic notes",
    "kafka-topics --create --topic timed --partitions 1 --config retention.ms=-1",  # its records are of 2023
    "kafka-topics --create --topic bills --config retention.ms=1000 --config retention.bytes=2000",
    "kafka-topics --create --topic ledger --config cleanup.policy=compact",
    "kafka-topics --create --topic placed --replica-assignment 1,1",
    "kafka-topics --create --topic bad --config nonsense=1",
    "kafka-topics --create --topic bad --config retention.ms=-2",
    "kafka-topics --create --topic bad --partitions 0",
    "kafka-topics --create --topic bad --replication-factor 0",
    "kafka-topics --create --topic bad!",
    "kafka-topics --list",
    "kafka-topics --list --topic 'orders|no.*'",
    "kafka-topics --describe",
    "kafka-topics --describe --topic orders",
    "kafka-topics --describe --topic missing",
    "kafka-topics --describe --topic missing --if-exists",
    "kafka-topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
    "kafka-topics --describe --topics-with-overrides",
    "kafka-topics --describe --under-replicated-partitions",
    "kafka-topics --describe --unavailable-partitions",
    "kafka-topics --alter --topic orders --partitions 6",
    "kafka-topics --describe --topic orders  with more partitions",
    "kafka-topics --alter --topic orders --partitions 6  again",
    "kafka-topics --alter --topic orders --partitions 3",
    "kafka-topics --alter --topic missing --partitions 3",
)
TOPIC_CONFIGS = (
    f"{DESCRIBE} orders",
    f"{CONFIGS} orders --add-config retention.ms=604800000",
    f"{DESCRIBE} orders  with retention.ms",
    f"{CONFIGS} orders --add-config retention.ms=120000",
    f"{CONFIGS} orders --add-config retention.bytes=1000000,segment.bytes=1048576",
    f"{DESCRIBE} orders  with all three",
    "kafka-configs --describe --topic bills",
    f"{CONFIGS} orders --delete-config retention.ms",
    f"{DESCRIBE} orders  without retention.ms",
    f"{CONFIGS} orders --delete-config retention.ms  that is gone",
    f"{CONFIGS} orders --add-config nonsense=1",
    f"{CONFIGS} orders --add-config retention.ms=-2",
    f"{CONFIGS} orders --add-config retention.ms=often",
    f"{CONFIGS} orders --add-config segment.bytes=0",
    f"{CONFIGS} missing --add-config retention.ms=1",
    f"{DESCRIBE} missing",
    "kafka-configs --describe --entity-type brokers --entity-name 1",
    "kafka-configs --describe --entity-type brokers",
    "kafka-configs --describe --entity-type client-metrics",
)
CLUSTER = (
    "kafka-cluster cluster-id",
    "kafka-leader-election --election-type preferred --topic orders --partition 0",
    "kafka-leader-election --election-type unclean --topic orders --partition 0",
    "kafka-leader-election --election-type preferred --topic orders --partition 77",
)
RECORDS = (
    f"kafka-console-producer --topic orders {KEYS} <<< {KEYED}",
    "kafka-console-producer --topic notes <<< one\ntwo\nthree\nfour\nfive\n",
    f"kafka-console-producer --topic notes {KEYS} <<< no separator\n",
    "kafka-console-producer --topic ledger <<< a record without a key\n",
    f"kafka-console-producer --topic ledger {KEYS} <<< debt:7\n",
    "kafka-get-offsets",
    "kafka-get-offsets --topic orders",
    "kafka-get-offsets --topic orders --time -1",
    "kafka-get-offsets --topic orders --time earliest",
    "kafka-get-offsets --topic timed --time -2",
    "kafka-get-offsets --topic timed --time -3",
    "kafka-get-offsets --topic timed --time -4",
    "kafka-get-offsets --topic timed --time -5",
    f"kafka-get-offsets --topic timed --time {FIRST_TIMESTAMP + 1500}",
    f"kafka-get-offsets --topic timed --time {FIRST_TIMESTAMP + 9000}",
    "kafka-get-offsets --topic timed --time never",
    "kafka-get-offsets --topic-partitions orders:2-4,notes:0",
    "kafka-get-offsets --topic orders --partitions 0,9",
    "kafka-get-offsets --topic missing",
    f"{READ} --topic notes --partition 0 --offset 2 --max-messages 3",
    f"{READ} --topic orders --group readers --from-beginning --max-messages 6 {SHOWN}",
)
DELETED = (
    "kafka-delete-records --offset-json-file two.json",
    "kafka-get-offsets --topic notes --time -2  after records were deleted",
    f"{READ} --topic notes --partition 0 --offset earliest --max-messages 3",
    "kafka-delete-records --offset-json-file one.json  below the start",
    "kafka-delete-records --offset-json-file nine.json  beyond the end",
    "kafka-delete-records --offset-json-file all.json",
    "kafka-get-offsets --topic notes --time -2  after all were deleted",
)
WITH_A_MEMBER = (
    "kafka-consumer-groups --list  with a member",
    "kafka-consumer-groups --list --state  with a member",
    "kafka-consumer-groups --describe --group my-group --state  with a member",
    "kafka-consumer-groups --describe --group my-group --members  with a member",
    "kafka-consumer-groups --delete --group my-group  with a member",
    "kafka-consumer-groups --reset-offsets --group my-group --topic orders --to-earliest --execute  as well",
)
GROUPS = (
    "kafka-consumer-groups --list",
    "kafka-consumer-groups --describe --group my-group",
    "kafka-consumer-groups --describe --group my-group --state",
    "kafka-consumer-groups --describe --group missing",
    "kafka-consumer-groups --reset-offsets --group my-group --topic orders:4 --to-offset 1 --execute",
    f"{READ} --topic orders --group my-group --max-messages 1 {SHOWN}",
    "kafka-consumer-groups --describe --group my-group  after a reset",
    "kafka-consumer-groups --delete --group my-group",
    "kafka-consumer-groups --delete --group my-group  again",
    "kafka-consumer-groups --delete --group readers",
    "kafka-consumer-groups --list  in the end",
)
DELETIONS_OF_RECORDS = {"one": 1, "two": 2, "nine": 9, "all": -1}
DELETIONS = (
    "kafka-topics --delete --topic notes",
    "kafka-topics --delete --topic notes  again",
    "kafka-topics --delete --topic notes --if-exists",
    "kafka-topics --create --topic notes --partitions 2",
    "kafka-get-offsets --topic notes  of a topic made again",
    "kafka-topics --delete --topic '(notes|timed|bills|ledger|placed|orders)'",
    "kafka-topics --list --exclude-internal  in the end",
)
COMMANDS = (*TOPICS, *TOPIC_CONFIGS, *CLUSTER, *RECORDS, *DELETED, *WITH_A_MEMBER, *GROUPS, *DELETIONS)
"""In this order. Words after two spaces tell a command from the same one before."""

EXAMPLES = {
    "kafka-consumer-groups --list": r"^my-group$",
    "kafka-consumer-groups --describe --group my-group": r"^my-group +orders +4 +2 +2 +0 ",
    f"{DESCRIBE} orders": r"\ADynamic configs .* orders are:\Z",
    f"{CONFIGS} orders --add-config retention.ms=604800000": r"\ACompleted updating config for topic orders\.\Z",
    f"{DESCRIBE} orders  with retention.ms": r"^  retention\.ms=604800000 ",
    "kafka-topics --alter --topic orders --partitions 6": r"\A\Z",
    "kafka-topics --describe --topic orders  with more partitions": r"\tPartitionCount: 6\t",
    f"{CONFIGS} orders --add-config retention.ms=120000": r"\ACompleted updating config for topic orders\.\Z",
    f"{DESCRIBE} orders  with all three": r"^  retention\.ms=120000 ",
    "kafka-consumer-groups --delete --group my-group": r"\ADeletion .* groups \('my-group'\) was successful\.\Z",
    "kafka-consumer-groups --list  in the end": r"\A\Z",
}
"""The ops document's examples and how each is seen to have done its work -> what KafScale's answer must match."""

OWN_WORDS = {
    "kafka-topics --create --topic bad!": "'bad!' holds characters other than",
    "kafka-topics --alter --topic orders --partitions 6  again": "Topic currently has 6 partitions",
    "kafka-topics --alter --topic orders --partitions 3": "not lower than the requested 3",
    f"{CONFIGS} orders --add-config retention.ms=-2": "retention.ms",
    f"{CONFIGS} orders --add-config retention.ms=often": "retention.ms",
    f"{CONFIGS} orders --add-config segment.bytes=0": "segment.bytes",
    f"{CONFIGS} missing --add-config retention.ms=1": "Topic 'missing' does not exist.",
    f"{DESCRIBE} missing": "Topic 'missing' does not exist.",
}
"""Refusals whose text is not Kafka's -> what is in ours. The last is not refused by kafka-configs of 4.3."""
NOT_OURS = (
    re.compile(r"^.*__consumer_offsets.*$", re.MULTILINE),  # offsets are in etcd here
    re.compile(r"\tElr:.*$", re.MULTILINE),  # there are no replicas that could lag
    # The default's synonym: Kafka names one only where log.retention.ms is set for a broker.
    re.compile(r", DEFAULT_CONFIG:log\.retention\.ms=604800000"),
)

pytestmark = pytest.mark.timeout(900)


def fill(bootstrap: str) -> None:
    """Three records whose times are known; the second is the latest."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in (1000, 3000, 2000):
        producer.produce("timed", str(n), partition=0, timestamp=FIRST_TIMESTAMP + n)
    assert producer.flush(60) == 0


Said = dict[str, Answer]


def story(jvm: Tools) -> Said:
    """Command -> the tool's answer."""

    def ask(commands: Iterable[str]) -> Said:
        return {command: jvm.run(command.split("  ")[0]) for command in commands}

    said = ask((*TOPICS, *TOPIC_CONFIGS, *CLUSTER))
    fill(jvm.bootstrap)
    for name, offset in DELETIONS_OF_RECORDS.items():
        wish = {"topic": "notes", "partition": 0, "offset": offset}
        (jvm.folder / f"{name}.json").write_text(json.dumps({"version": 1, "partitions": [wish]}))
    said |= ask((*RECORDS, *DELETED))
    with jvm.reading(READ_ORDERS, records=6):
        said |= ask(WITH_A_MEMBER)
    return said | ask((*GROUPS, *DELETIONS))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    require_java()
    with side_by_side(tmp_path_factory.mktemp("tools")) as bootstraps:
        yield bootstraps


@dataclass(frozen=True, slots=True)
class Stage:
    """The tools of one version for each system, after the story, which leaves nothing behind."""

    kafscale: Tools
    kafka: Tools
    said: Said
    expected: Said


@pytest.fixture(scope="module", params=VERSIONS)
def stage(
    request: pytest.FixtureRequest, both: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    version: str = request.param
    folder = tmp_path_factory.mktemp(version)
    with (
        tools(version, both[0], folder) as ours,
        tools(version, both[1], folder) as theirs,
        ThreadPoolExecutor() as pool,
    ):
        said, expected = pool.map(story, (ours, theirs))
        for name, answers in (("kafscale", said), ("kafka", expected)):
            texts = {command: answer.text for command, answer in answers.items()}
            keep(tmp_path_factory.getbasetemp() / f"tools-{version}-{name}.txt", texts)
        yield Stage(ours, theirs, said, expected)


def rows(answer: Answer) -> list[str]:
    text = answer.text
    for pattern in NOT_OURS:
        text = pattern.sub("", text)
    return masked(text)


def exceptions(answer: Answer) -> set[str]:
    return set(re.findall(r"\w+Exception", answer.text))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tool_prints_what_it_prints_for_apache_kafka(stage: Stage, command: str) -> None:
    said, expected = stage.said[command], stage.expected[command]
    if command in OWN_WORDS and expected.exit != 0:
        assert OWN_WORDS[command] in said.text
        assert (said.exit, exceptions(said)) == (expected.exit, exceptions(expected))
    else:
        assert rows(said) == rows(expected)


@pytest.mark.parametrize("command", EXAMPLES)
def test_an_example_of_the_ops_document_does_what_it_says(stage: Stage, command: str) -> None:
    answer = stage.said[command]
    assert answer.exit == 0
    assert re.search(EXAMPLES[command], answer.text, re.MULTILINE), answer.text


@pytest.mark.parametrize("version", VERSIONS)
def test_the_documents_client_of_leader_epochs_is_in_no_jar(version: str) -> None:
    require_java()
    classes = {name for jar in kafka_jars(version) for name in ZipFile(jar).namelist()}
    assert "org/apache/kafka/tools/TopicCommand.class" in classes
    assert "kafka/admin/OffsetForLeaderEpochClient.class" not in classes


@pytest.fixture(scope="module")
def topic(stage: Stage) -> Iterator[str]:
    """Of both, for what is judged apart; one of its two partitions has a record."""
    commands = (
        "kafka-topics --create --topic apart --partitions 2 --config retention.ms=1000",
        "kafka-console-producer --topic apart <<< one\n",
    )
    answers = [jvm.run(command) for jvm in (stage.kafscale, stage.kafka) for command in commands]
    assert [answer.exit for answer in answers] == [0, 0, 0, 0]
    yield "apart"
    for jvm in (stage.kafscale, stage.kafka):
        jvm.run("kafka-topics --delete --topic apart")


OWN_DEFAULTS = {"file.delete.delay.ms", "flush.messages", "flush.ms", "message.timestamp.after.max.ms"}
"""Every record is flushed before it is acknowledged, and no time of a record is too far off."""


def configs(answer: Answer) -> dict[str, str]:
    return dict(re.findall(r"^  (\S+?)=(.*) sensitive=false", answer.text, re.MULTILINE))


def test_a_topic_has_the_configs_that_kafkas_has(stage: Stage, topic: str) -> None:
    command = f"{DESCRIBE} {topic} --all"
    ours, theirs = configs(stage.kafscale.run(command)), configs(stage.kafka.run(command))
    assert {name for name in ours if not name.startswith("kafscale.")} == set(theirs)
    assert {name for name in theirs if ours[name] != theirs[name]} == OWN_DEFAULTS


BROKER_CONFIGS = {
    "broker.id",
    "advertised.listeners",
    "kafscale.s3.bucket",
    "kafscale.s3.region",
    "kafscale.s3.endpoint",
    "kafscale.cache.bytes",
    "kafscale.readahead.segments",
    "kafscale.segment.bytes",
    "kafscale.flush.interval.ms",
}


def test_a_brokers_configs_are_shown(stage: Stage) -> None:
    command = "kafka-configs --describe --entity-type brokers --entity-name 1 --all"
    shown = configs(stage.kafscale.run(command))
    assert set(shown) >= BROKER_CONFIGS
    assert shown["broker.id"] == "1"
    assert stage.kafscale.bootstrap in shown["advertised.listeners"]


@pytest.mark.parametrize("broker", ["--entity-name 1", "--entity-default"])
@pytest.mark.parametrize(
    "change", ["--add-config kafscale.cache.bytes=1", "--add-config log.cleaner.threads=2"]
)
def test_no_config_of_a_broker_can_be_changed(stage: Stage, broker: str, change: str) -> None:
    answer = stage.kafscale.run(f"kafka-configs --alter --entity-type brokers {broker} {change}")
    assert answer.exit == 1
    assert "InvalidConfigurationException: Broker configs are read-only in KafScale" in answer.text


def versions(answer: Answer) -> dict[str, int]:
    """API -> the newest version that both sides know, of those that the broker serves."""
    assert answer.exit == 0, answer.text
    found = re.findall(r"^\s+(\w+)\(\d+\): \d.*\[usable: (\d+)\]", answer.text, re.MULTILINE)
    return {name: int(newest) for name, newest in found}


def test_each_api_is_served_up_to_kafkas_newest_version(stage: Stage) -> None:
    command = "kafka-broker-api-versions"
    ours, theirs = versions(stage.kafscale.run(command)), versions(stage.kafka.run(command))
    assert ours == {name: newest for name, newest in theirs.items() if name in ours}
    assert {"Produce", "Fetch", "DescribeGroups", "IncrementalAlterConfigs", "CreatePartitions"} <= set(ours)


def test_log_dirs_tell_each_partitions_bytes(stage: Stage, topic: str) -> None:
    answer = stage.kafscale.run(f"kafka-log-dirs --describe --topic-list {topic}")
    [broker] = json.loads(answer.out.splitlines()[-1])["brokers"]
    [folder] = broker["logDirs"]
    assert (broker["broker"], folder["error"]) == (1, None)
    sizes = {each["partition"]: each["size"] for each in folder["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sum(size > 0 for size in sizes.values()) == 1, "one of them has the record"
    assert "do not exist" in stage.kafscale.run("kafka-log-dirs --describe --broker-list 7").text


NOT_SERVED = {
    "kafka-configs --describe --entity-type users": "DESCRIBE_CLIENT_QUOTAS",
    "kafka-acls --list": "DESCRIBE_ACLS",
    "kafka-reassign-partitions --list": "LIST_PARTITION_REASSIGNMENTS",
    "kafka-metadata-quorum describe --status": "DESCRIBE_QUORUM",
    "kafka-features upgrade --feature metadata.version=7": "UPDATE_FEATURES",
    "kafka-transactions list": "LIST_TRANSACTIONS",
}


@pytest.mark.parametrize("command", NOT_SERVED)
def test_a_call_that_is_not_served_is_named(stage: Stage, command: str) -> None:
    answer = stage.kafscale.run(command)
    assert answer.exit == 1
    assert f"The node does not support {NOT_SERVED[command]} " in answer.text
    assert "The supported range is [-1,-1]." in answer.text, "as ApiVersions lists what is not served"
