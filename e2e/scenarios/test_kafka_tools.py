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

from e2e.harness.kafka_commands import (
    CLUSTER,
    COMMANDS,
    DELETED,
    DELETIONS,
    DELETIONS_OF_RECORDS,
    DESCRIBE,
    EXAMPLES,
    FIRST_TIMESTAMP,
    GROUP_CONFIGS,
    GROUPS,
    OWN_WORDS,
    READ_ORDERS,
    RECORDS,
    TOPIC_CONFIGS,
    TOPICS,
    USERS,
    WITH_A_MEMBER,
    rows,
)
from e2e.harness.kafka_tools import VERSIONS, Answer, Tools, kafka_jars, require_java, tools
from e2e.harness.side_by_side import keep, side_by_side, write_once

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

    said = ask((*TOPICS, *TOPIC_CONFIGS, *GROUP_CONFIGS, *CLUSTER, *USERS))
    fill(jvm.bootstrap)
    for name, offset in DELETIONS_OF_RECORDS.items():
        wish = {"topic": "notes", "partition": 0, "offset": offset}
        write_once(jvm.folder / f"{name}.json", json.dumps({"version": 1, "partitions": [wish]}))
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


@pytest.fixture(
    scope="module",
    params=[
        *(pytest.param(version, marks=pytest.mark.chaos) for version in VERSIONS[:-1]),
        pytest.param(VERSIONS[-1]),
    ],
)
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


def exceptions(answer: Answer) -> set[str]:
    return set(re.findall(r"\w+Exception", answer.text))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_tool_prints_what_it_prints_for_apache_kafka(stage: Stage, command: str) -> None:
    said, expected = stage.said[command], stage.expected[command]
    if command in OWN_WORDS and expected.exit != 0 and rows(said) != rows(expected):
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


def configs(answer: Answer) -> dict[str, str]:
    return dict(re.findall(r"^  (\S+?)=(.*) sensitive=false", answer.text, re.MULTILINE))


def test_a_topic_has_the_configs_that_kafkas_has(stage: Stage, topic: str) -> None:
    command = f"{DESCRIBE} {topic} --all"
    ours, theirs = configs(stage.kafscale.run(command)), configs(stage.kafka.run(command))
    assert {name for name in ours if not name.startswith("kafscale.")} == set(theirs)
    assert {name for name in theirs if ours[name] != theirs[name]} == set()


BROKER_CONFIGS = {
    "broker.id",
    "advertised.listeners",
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
    "kafka-metadata-quorum describe --status": "DESCRIBE_QUORUM",
    "kafka-features upgrade --feature metadata.version=7": "UPDATE_FEATURES",
}


@pytest.mark.parametrize("command", NOT_SERVED)
def test_a_call_that_is_not_served_is_named(stage: Stage, command: str) -> None:
    answer = stage.kafscale.run(command)
    assert answer.exit == 1
    assert f"The node does not support {NOT_SERVED[command]} " in answer.text
    assert "The supported range is [-1,-1]." in answer.text, "as ApiVersions lists what is not served"
