"""kafka-acls of Apache Kafka, and `kafscale acls`, against KafScale and against an Apache Kafka with its authorizer.

Law: both tools print the same for both, and exit with the same code.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.harness.apache import ApacheKafka, kafka_version
from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import Deployment
from e2e.harness.kafka_tools import require_java, tools
from e2e.harness.side_by_side import KAFKA_FEATURES, keep, masked

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
COMMAND_TIMEOUT_S = 60.0
ADD, REMOVE, LIST = "kafka-acls --add", "kafka-acls --remove --force", "kafka-acls --list"
TOOL_COMMANDS = (
    f"{LIST}  at first",
    f"{ADD} --allow-principal User:alice --operation Read --topic orders",
    f"{ADD} --allow-principal User:alice --operation Read --topic orders  again",
    f"{ADD} --allow-principal User:alice --allow-host 10.0.0.1 --operation Write --operation Create --topic orders",
    f"{ADD} --deny-principal User:* --deny-host 10.0.0.9 --operation All --topic or --resource-pattern-type prefixed",
    f"{ADD} --allow-principal User:bob --producer --topic bills",
    f"{ADD} --allow-principal User:bob --consumer --topic bills --group readers",
    f"{ADD} --allow-principal User:bob --operation Describe --cluster",
    f"{ADD} --allow-principal User:bob --producer --idempotent --topic bills --transactional-id tx",
    f"{ADD} --allow-principal Team:a:b --operation DescribeTokens --user-principal User:carol",
    f"{ADD} --allow-principal User:bob --operation Write --group readers",
    f"{ADD} --allow-principal alice --operation Read --topic orders",
    f"{ADD} --operation Read --topic orders",
    f"{LIST}  with all",
    f"{LIST} --topic orders",
    f"{LIST} --topic orders --resource-pattern-type match",
    f"{LIST} --topic or --resource-pattern-type prefixed",
    f"{LIST} --principal User:bob",
    f"{LIST} --topic bills --principal User:alice",
    f"{LIST} --cluster",
    f"{REMOVE} --allow-principal User:alice --operation Read --topic orders",
    f"{REMOVE} --topic orders --resource-pattern-type match",
    f"{LIST}  after a removal",
    f"{REMOVE} --topic bills",
    f"{REMOVE} --group readers",
    f"{REMOVE} --group readers  again",
    f"{LIST}  with a few left",
)
"""In this order. Words after two spaces distinguish a command from an earlier equal one."""
OWN_COMMANDS = (
    "list  of what the tool has left",
    "add --allow-principal User:alice --operation read --operation describe-configs --topic orders",
    "add --deny-principal User:* --deny-host 10.0.0.9 --topic or --resource-pattern-type prefixed",
    "add --allow-principal User:bob --consumer --topic orders --group readers",
    "add --allow-principal User:bob --producer --topic orders --transactional-id tx",
    "list  with all",
    "list --topic orders --resource-pattern-type match",
    "list --principal User:bob",
    "remove --allow-principal User:alice --operation read --topic orders",
    "remove --topic orders",
    "remove --topic orders  again",
    "remove --topic or --resource-pattern-type prefixed",
    "list  in the end",
)

OURS = {
    "KAFSCALE_AUTHORIZER": "acl",
    "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
    "KAFSCALE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true",
}

pytestmark = pytest.mark.timeout(600)
Said = dict[str, str]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    require_java()
    folder = tmp_path_factory.mktemp("acls")
    ours = Deployment(folder / "kafscale", 1, on_s3=False)
    theirs = ApacheKafka(
        folder / "kafka", flush_before_ack=False, settings=AUTHORIZER, features=KAFKA_FEATURES, heap="512m"
    )
    with ExitStack() as stack:
        stack.callback(ours.kill)
        ours.start_etcd()
        ours.start_services(OURS, roles=("admin", "frontdoor"))
        stack.callback(theirs.stop)
        theirs.start()
        ours.wait_ready()
        yield ours.bootstrap, theirs.bootstrap


def run_tool(bootstrap: str, folder: Path) -> Said:
    with tools(kafka_version(), bootstrap, folder) as jvm:
        return {command: jvm.run(command.split("  ")[0]).text for command in TOOL_COMMANDS}


def run_own(bootstrap: str, _: Path) -> Said:
    said = {}
    for command in OWN_COMMANDS:
        words = command.split("  ")[0].split()
        output = [] if words[0] == "add" else ["--output", "json"]
        done = subprocess.run(
            [*KAFSCALE, "acls", *words, "--bootstrap-server", bootstrap, *output],
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        said[command] = f"{done.stdout}{done.stderr}exit {done.returncode}"
    return said


@pytest.fixture(scope="module")
def said(both: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Said, Said]:
    """By both systems. The second tool continues where the first has ended."""
    runs: tuple[Callable[[str, Path], Said], ...] = (run_tool, run_own)
    answers = []
    for name, bootstrap in zip(("kafscale", "kafka"), both, strict=True):
        folder = tmp_path_factory.mktemp(name)
        found: Said = {}
        for run in runs:
            found |= run(bootstrap, folder)
        keep(tmp_path_factory.getbasetemp() / f"acls-{name}.txt", found)
        answers.append(found)
    ours, theirs = answers
    return ours, theirs


def in_order(output: str) -> str:
    """Java prints a set of operations in an order that differs between processes."""
    return re.sub(r"\[[A-Z_, ]+\]", lambda found: str(sorted(found[0].strip("[]").split(", "))), output)


@pytest.mark.parametrize("command", [*TOOL_COMMANDS, *OWN_COMMANDS])
def test_a_tool_prints_what_it_prints_for_apache_kafka(said: tuple[Said, Said], command: str) -> None:
    ours, theirs = said
    assert masked(in_order(ours[command])) == masked(in_order(theirs[command]))


def test_the_commands_do_what_they_say(said: tuple[Said, Said]) -> None:
    ours, _ = said
    everything = ours["list  with all"]
    rows = json.loads(everything[: everything.rindex("]") + 1])
    assert {
        "resource": "topic",
        "name": "or",
        "pattern": "prefixed",
        "principal": "User:*",
        "host": "10.0.0.9",
        "operation": "all",
        "permission": "deny",
    } in rows
    assert ours["remove --topic orders  again"].endswith("exit 1")
    assert "Invalid empty" not in "".join(ours.values())
    assert "SECURITY_DISABLED" not in "".join(ours.values())
