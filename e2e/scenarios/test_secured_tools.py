"""Kafka's command line tools with --command-config, for users with different rights, against both systems.

Law: for the same users and ACLs, every tool prints the same for KafScale and for Apache Kafka, and exits with the same
code: what it lists, what it leaves out, and the words of each refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from e2e.harness.apache import kafka_version
from e2e.harness.kafka_commands import rows
from e2e.harness.kafka_tools import Answer, Tools, require_java, tools
from e2e.harness.secured_pair import password_of, properties, secured_pair
from e2e.harness.side_by_side import keep

PLAIN_USERS = ("root", "alice", "bob")
"""root is a super user, alice gets some rights, and bob has none."""
CAROL = ("carol", "SCRAM-SHA-512")
"""Made by kafka-configs, and removed by it."""
ADD = "kafka-acls --add --allow-principal"
ALTER_USER = "kafka-configs --alter --entity-type users --entity-name carol"
PASSWORD = f"password={password_of('carol')}"
WRONG_PASSWORD = "alice with a wrong password: kafka-topics --list"

COMMANDS = (
    "root: kafka-topics --create --topic orders --partitions 1",
    "root: kafka-topics --create --topic bills --partitions 1",
    "root: kafka-console-producer --topic orders <<< one",
    f"root: {ADD} User:alice --operation Read --operation Write --topic orders",
    f"root: {ADD} User:alice --operation Read --group readers",
    f"root: {ADD} User:alice --operation Create --topic alices --resource-pattern-type prefixed",
    "root: kafka-acls --list",
    "root: kafka-topics --list",
    *(
        f"{user}: {command}"
        for user in ("alice", "bob")
        for command in (
            "kafka-topics --list",
            "kafka-topics --describe",
            "kafka-topics --describe --topic orders",
            "kafka-topics --describe --topic bills",
            "kafka-topics --describe --topic missing",
            "kafka-topics --create --topic alices-own --partitions 1",
            "kafka-topics --create --topic others",
            "kafka-topics --alter --topic orders --partitions 3",
            "kafka-topics --alter --topic bills --partitions 3",
            "kafka-topics --delete --topic orders",
            "kafka-topics --delete --topic bills",
            "kafka-configs --describe --entity-type topics --entity-name orders",
            "kafka-configs --alter --entity-type topics --entity-name orders --add-config retention.ms=1000",
            "kafka-configs --alter --entity-type topics --entity-name bills --add-config retention.ms=1000",
            "kafka-get-offsets --topic orders",
            "kafka-get-offsets",
            "kafka-consumer-groups --reset-offsets --group readers --topic orders --to-earliest --execute",
            "kafka-consumer-groups --reset-offsets --group readers --topic bills --to-earliest --execute",
            "kafka-consumer-groups --list",
            "kafka-consumer-groups --describe --group readers",
            "kafka-consumer-groups --describe --group others",
            "kafka-consumer-groups --describe --all-groups",
            "kafka-consumer-groups --delete-offsets --group readers --topic orders",
            "kafka-consumer-groups --delete --group readers",
            "kafka-acls --list",
            f"{ADD} User:bob --operation Read --topic orders",
            "kafka-acls --remove --force --topic orders",
            "kafka-configs --describe --entity-type users",
            f"{ALTER_USER} --add-config SCRAM-SHA-512=[{PASSWORD}]",
            f"{ALTER_USER} --delete-config SCRAM-SHA-512",
            "kafka-log-dirs --describe",
            "kafka-reassign-partitions --list",
            "kafka-console-producer --topic orders <<< two",
        )
    ),
    "root: kafka-topics --list  with alice's own",
    "root: kafka-consumer-groups --list",
    f"root: {ADD} User:alice --operation Describe --operation Alter --operation DescribeConfigs --cluster",
    "alice: kafka-consumer-groups --list  with the cluster",
    "alice: kafka-acls --list  with the cluster",
    f"alice: {ADD} User:carol --operation Describe --topic bills",
    "alice: kafka-configs --describe --entity-type users  with the cluster",
    f"alice: {ALTER_USER} --add-config SCRAM-SHA-512=[iterations=8192,{PASSWORD}],SCRAM-SHA-256=[{PASSWORD}]",
    f"alice: {ALTER_USER} --add-config SCRAM-SHA-512=[iterations=8192,{PASSWORD}]",
    f"alice: {ALTER_USER} --add-config SCRAM-SHA-512=[iterations=4095,{PASSWORD}]",
    "root: kafka-configs --describe --entity-type users",
    "root: kafka-configs --describe --entity-type users --entity-name carol",
    "carol: kafka-topics --list",
    "carol: kafka-topics --describe --topic bills",
    "carol: kafka-topics --describe --topic orders",
    f"root: {ALTER_USER} --delete-config SCRAM-SHA-512",
    "carol: kafka-topics --list  without a password",
    WRONG_PASSWORD,
    "root: kafka-acls --remove --force --topic orders",
    "alice: kafka-topics --list  without rights on orders",
    "root: kafka-acls --list  in the end",
)
"""In this order. Words after two spaces distinguish a command from an earlier equal one."""
READS = (
    "alice: kafka-console-consumer --topic orders --group readers --from-beginning --max-messages 1",
    "bob: kafka-console-consumer --topic orders --group readers --from-beginning --max-messages 1",
)
"""Each has a JVM of its own. They come before alice loses her rights."""

OWN_WORDS = {WRONG_PASSWORD: "Authentication failed"}
"""Refusals whose text is not Kafka's -> what both have. Kafka's PLAIN has a sentence that its other mechanisms lack."""

pytestmark = pytest.mark.timeout(900)
Said = dict[str, Answer]


def run(jvm: Tools, line: str) -> Answer:
    who, command = line.split("  ")[0].split(": ", 1)
    match who.partition(" ")[0]:
        case "carol":
            settings = properties(jvm.folder, *CAROL)
        case user:
            settings = properties(jvm.folder, user, password="wrong" if "wrong" in who else "")
    name, _, rest = command.partition(" ")
    patience = "--timeout 60000 " if name == "kafka-consumer-groups" else ""
    return jvm.run(f"{name} --command-config {settings} {patience}{rest}")


def story(jvm: Tools) -> Said:
    at = COMMANDS.index("root: kafka-acls --remove --force --topic orders")
    return {line: run(jvm, line) for line in (*COMMANDS[:at], *READS, *COMMANDS[at:])}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Said, Said]]:
    require_java()
    folder = tmp_path_factory.mktemp("tools")
    with secured_pair(folder, PLAIN_USERS) as (ours, theirs):
        version = kafka_version()
        with (
            tools(version, ours.sasl, folder) as first,
            tools(version, theirs.sasl, folder) as second,
            ThreadPoolExecutor() as pool,
        ):
            answers = list(pool.map(story, (first, second)))
        for name, found in zip(("kafscale", "kafka"), answers, strict=True):
            path: Path = tmp_path_factory.getbasetemp() / f"secured-tools-{name}.txt"
            keep(path, {command: answer.text for command, answer in found.items()})
        yield answers[0], answers[1]


@pytest.mark.parametrize("line", [*COMMANDS, *READS])
def test_a_tool_prints_for_each_user_what_it_prints_for_apache_kafka(
    said: tuple[Said, Said], line: str
) -> None:
    ours, theirs = (found[line] for found in said)
    if line in OWN_WORDS:
        assert ours.exit == theirs.exit != 0
        assert all(OWN_WORDS[line] in answer.text for answer in (ours, theirs))
    else:
        assert rows(ours) == rows(theirs)


def test_the_rights_make_a_difference(said: tuple[Said, Said]) -> None:
    ours, _ = said
    assert ours["alice: kafka-topics --list"].out.split() == ["orders"]
    assert ours["bob: kafka-topics --list"].out.split() == []
    assert ours["alice: kafka-consumer-groups --list"].out.split() == ["readers"]
    assert ours["carol: kafka-topics --list"].out.split() == ["bills"]
    assert "ClusterAuthorizationException" in ours["bob: kafka-acls --list"].text
    assert "one" in ours[READS[0]].out
