"""Limits and validations of KafScale, and those of an Apache Kafka beside it, which judges.

Law: both give the same error code to each question, and show the same value after it. Each difference on purpose has a
sentence in `ON_PURPOSE`, and a sentence without a difference fails too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import (
    create_topics,
    delete_records,
    find_coordinator,
    metadata,
    offset_commit,
)

from e2e.harness.config_questions import (
    BROKER,
    GROUP,
    INT32_MAX,
    TOPIC,
    Answers,
    Operation,
    Question,
    alter,
    alterations,
    creations,
    described,
    differing,
    keys_of,
    replace,
    row,
)
from e2e.harness.epoch_questions import epoch_in_metadata, epochs_of
from e2e.harness.kafka_tools import require_java
from e2e.harness.raw import Raw
from e2e.harness.requests import ask, ask_produce, batch, produce_body
from e2e.harness.services import until
from e2e.harness.side_by_side import side_by_side

pytestmark = pytest.mark.timeout(900)

TOPIC_NAME, GROUP_NAME = "limits", "limited"
OWN_KEYS: Final = {"kafscale.linger.ms"}
LARGEST_BATCH: Final = 64 << 20
ON_PURPOSE: Final[dict[str, Callable[[Question], bool]]] = {
    "The largest batch is 64 MiB.": lambda asked: (
        asked.key == "max.message.bytes" and _number(asked.value) > LARGEST_BATCH
    ),
}


def _number(value: str | None) -> int:
    try:
        return int(value or "")
    except ValueError:
        return 0


@dataclass(frozen=True, slots=True)
class Pair:
    ours: Raw
    theirs: Raw

    def each(self, call: Callable[..., Any], *asked: object) -> tuple[Any, Any]:
        return call(self.ours, *asked), call(self.theirs, *asked)

    def agree(self, call: Callable[..., Any], *asked: object) -> Any:
        """What both answer."""
        ours, theirs = self.each(call, *asked)
        assert ours == theirs, asked
        return ours


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    require_java()
    with side_by_side(tmp_path_factory.mktemp("limits")) as both:
        yield both


@pytest.fixture(scope="module")
def pair(addresses: tuple[str, str]) -> Iterator[Pair]:
    with Raw.to(addresses[0]) as ours, Raw.to(addresses[1]) as theirs:
        both = Pair(ours, theirs)
        assert both.agree(create, TOPIC_NAME) == 0
        yield both


def create(raw: Raw, name: str) -> int:
    """Waits until the topic can be used."""
    new = create_topics.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[new], timeout_ms=30_000)
    code: int = ask(raw, create_topics, 7, request).topics[0].error_code
    until(f"{name} has a leader", lambda: leader_of(raw, name) >= 0, 60)
    return code


def leader_of(raw: Raw, name: str) -> int:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    (topic,) = ask(raw, metadata, 12, request).topics
    leader: int = topic.partitions[0].leader_id if topic.partitions else -1
    return leader


def differences(pair: Pair, excused: set[str], call: Callable[..., Answers], *asked: object) -> list[object]:
    """The differences that are not on purpose. `excused` collects the reasons of the others."""
    found: list[object] = []
    for question, ours, theirs in differing(*pair.each(call, *asked)):
        reasons = [reason for reason, fits in ON_PURPOSE.items() if fits(question)]
        excused.update(reasons)
        if not reasons:
            found.append((question, ours, theirs))
    return found


def test_each_config_of_a_topic_and_of_a_group_takes_the_values_that_kafka_takes(pair: Pair) -> None:
    excused: set[str] = set()
    for kind, name in ((TOPIC, TOPIC_NAME), (GROUP, GROUP_NAME)):
        ours, theirs = pair.each(keys_of, kind, name)
        assert ours.keys() - OWN_KEYS == theirs.keys()
        keys = sorted(theirs.items())
        assert differences(pair, excused, alterations, kind, name, keys) == []
        if kind == TOPIC:
            assert differences(pair, excused, creations, keys) == []
    assert excused == set(ON_PURPOSE)


def test_each_config_has_the_default_the_type_and_the_chain_of_kafkas(pair: Pair) -> None:
    for kind, name in ((TOPIC, TOPIC_NAME), (GROUP, GROUP_NAME)):
        ours, theirs = (
            {config.name: row(config) for config in each.configs if config.name not in OWN_KEYS}
            for each in pair.each(described, kind, name)
        )
        assert ours == theirs


SHOWN = [
    ("cleanup.policy", " compact , delete "),
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,delete"),
    ("retention.ms", " 7 "),
    ("retention.ms", "+7"),
    ("retention.ms", "007"),
    ("retention.bytes", "-7"),
    ("preallocate", "TRUE"),
    ("compression.type", " gzip"),
    ("leader.replication.throttled.replicas", " 0:1 , 1:1 "),
    ("leader.replication.throttled.replicas", "0:1,0:1"),
    ("leader.replication.throttled.replicas", ""),
    ("min.cleanable.dirty.ratio", ".5"),
    ("min.cleanable.dirty.ratio", "0.50"),
    ("min.cleanable.dirty.ratio", "1"),
    ("min.cleanable.dirty.ratio", "0.00015"),
]


def test_a_value_is_shown_as_kafka_shows_it(pair: Pair) -> None:
    for key, value in SHOWN:
        pair.agree(changed, key, Operation.SET, value)
        pair.each(changed, key, Operation.DELETE, None)


def changed(raw: Raw, key: str, operation: int, value: str | None) -> tuple[int, object]:
    """The code of a change of the topic, and the config once it is shown. Kafka shows it a little later."""
    code = alter(raw, TOPIC, TOPIC_NAME, [(operation, key, value)], validate_only=False)
    mark = str(1 + int(shown(raw, "flush.messages")[0] or "0") % INT32_MAX)
    assert alter(raw, TOPIC, TOPIC_NAME, [(Operation.SET, "flush.messages", mark)], validate_only=False) == 0
    until("the next change is shown", lambda: shown(raw, "flush.messages")[0] == mark, 60)
    return code, shown(raw, key)


def shown(raw: Raw, key: str) -> tuple[str | None, int]:
    (config,) = described(raw, TOPIC, TOPIC_NAME, [key]).configs
    return config.value, config.config_source


def test_the_policy_of_cleanup_gains_and_loses_its_items_as_in_kafka(pair: Pair) -> None:
    """Also the last one: a topic may have no policy, and then DeleteRecords works as with `delete`."""
    for operation, value in (
        (Operation.SET, "compact"),
        (Operation.APPEND, "delete"),
        (Operation.APPEND, "delete"),
        (Operation.SUBTRACT, "compact"),
        (Operation.SUBTRACT, "delete"),
        (Operation.SUBTRACT, "delete"),
        (Operation.APPEND, "compact,delete"),
        (Operation.SUBTRACT, "delete"),
        (Operation.SET, "compact"),
    ):
        pair.agree(changed, "cleanup.policy", operation, value)
    assert pair.agree(deletion) == 44
    assert pair.agree(changed, "cleanup.policy", Operation.SET, "")[0] == 0
    assert pair.agree(deletion) == 0
    pair.each(changed, "cleanup.policy", Operation.DELETE, None)


def deletion(raw: Raw, name: str = TOPIC_NAME, below: int = -1) -> int:
    part = delete_records.DeleteRecordsRequestPartition(partition_index=0, offset=below)
    topic = delete_records.DeleteRecordsRequestTopic(name=name, partitions=[part])
    answer = ask(
        raw, delete_records, 2, delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=30_000)
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


TOGETHER: list[list[tuple[str, str | None]]] = [
    [],
    [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
    [("retention.ms", "1000"), ("local.retention.ms", "5000")],
    [("retention.bytes", "100"), ("local.retention.bytes", "200")],
    [("remote.log.copy.disable", "true"), ("remote.log.delete.on.disable", "true")],
    [("retention.ms", "1"), ("retention.ms", "2")],
    [("retention.ms", "x"), ("retention.ms", "2")],
    [("retention.ms", "5"), ("flush.ms", "x")],
    [("compression.type", "gzip"), ("compression.gzip.level", "0")],
    [("internal.segment.bytes", "1"), ("segment.bytes", "1048576")],
    [("", "1")],
    [("", None)],
    [("no.such", "1")],
    [("no.such", None)],
    [("RETENTION.MS", "5")],
    [(" retention.ms", "5")],
    [("message.format.version", "3.0")],
    [("message.downconversion.enable", "true")],
    [("consumer.session.timeout.ms", "60000"), ("consumer.heartbeat.interval.ms", "15000")],
    [("consumer.session.timeout.ms", "60001")],
]
RESOURCES = [
    *((TOPIC, name) for name in (TOPIC_NAME, "nosuch")),
    *((GROUP, name) for name in (GROUP_NAME, "é" * 500)),
    *((kind, "x") for kind in (-1, 0, 1, 3, 64)),
]
"""Brokers are in another test: most of what can be changed there cannot be changed here."""
IMPOSSIBLE = [(GROUP, ""), *((TOPIC, name) for name in ("", ".", "..", "a b", "é", "x" * 250))]


def test_configs_together_and_any_resource_get_the_code_of_kafka(pair: Pair) -> None:
    for kind, name in RESOURCES:
        pair.agree(error_of, kind, name)
        for configs in TOGETHER:
            pair.agree(replace, kind, name, configs)
            for operation in Operation:
                pair.agree(alter, kind, name, [(int(operation), key, value) for key, value in configs])


def test_a_name_that_no_topic_or_group_can_have_gets_the_code_of_kafka(pair: Pair) -> None:
    for kind, name in IMPOSSIBLE:
        pair.agree(error_of, kind, name)
        pair.agree(replace, kind, name, [("flush.ms", "5")])
        pair.agree(alter, kind, name, [(int(Operation.SET), "flush.ms", "5")])


def error_of(raw: Raw, kind: int, name: str) -> int:
    return described(raw, kind, name).error_code


@pytest.mark.parametrize("name", ["", "node", "x", "999", "-1", " "])
@pytest.mark.parametrize(
    "changes",
    [
        [],
        [(Operation.DELETE, "no.such", None)],
        [(Operation.DELETE, "log.retention.ms", "7")],
        [(Operation.SET, "log.retention.ms", None)],
        [(Operation.SET, "log.retention.ms", "1"), (Operation.DELETE, "log.retention.ms", None)],
        [(9, "log.retention.ms", "1")],
    ],
)
def test_what_changes_no_broker_gets_the_code_of_kafka(
    pair: Pair, name: str, changes: list[tuple[int, str, str | None]]
) -> None:
    def code(raw: Raw) -> int:
        node = str(leader_of(raw, TOPIC_NAME)) if name == "node" else name
        return alter(raw, BROKER, node, changes)

    pair.agree(code)


OTHER_VALUES: Final = {
    "advertised.listeners": "its own address",
    "log.dirs": "the object store",
    "log.cleaner.backoff.ms": "upkeep compacts hourly",
    "log.retention.check.interval.ms": "upkeep runs hourly",
    "group.max.size": "a group has at most 1,000 members",
    "group.consumer.max.size": "a group has at most 1,000 members",
    "offsets.topic.num.partitions": "the slots of groups",
}


def test_a_broker_shows_kafkas_configs_with_their_types_and_with_values_that_are_true_here(
    pair: Pair,
) -> None:
    def shown(raw: Raw) -> dict[str, Any]:
        node = str(leader_of(raw, TOPIC_NAME))
        return {config.name: config for config in described(raw, BROKER, node).configs}

    ours, theirs = pair.each(shown)
    own = {name for name in ours if not name.startswith("kafscale.")}
    assert own <= theirs.keys()
    assert {name: ours[name].config_type for name in own} == {name: theirs[name].config_type for name in own}
    assert {ours[name].value for name in ("broker.id", "node.id")} == {str(leader_of(pair.ours, TOPIC_NAME))}
    assert {name for name in own if ours[name].value != theirs[name].value} == OTHER_VALUES.keys()
    asked_by_tools = {
        "connections.max.reauth.ms",
        "log.dirs",
        "node.id",
        "log.retention.ms",
        "delete.topic.enable",
        "log.cleaner.backoff.ms",
    }
    assert own >= asked_by_tools | {"offsets.topic.replication.factor", "default.replication.factor"}
    assert all(config.read_only for config in ours.values())


def test_leader_epochs_of_empty_and_of_written_topics_are_those_of_kafka(pair: Pair) -> None:
    """Counted from the first one: Kafka begins with 0, and KafScale with 1."""
    name = "epochs"
    pair.agree(create, name)
    firsts = pair.each(epoch_in_metadata, name)
    assert firsts == (1, 0)
    for written in (0, 3):
        if written:
            body = produce_body((name, 0, batch(written)))
            assert [part.error_code for part in pair.agree(ask_produce, body)] == [0]
        assert pair.each(epoch_in_metadata, name) == firsts
        ours, theirs = (
            epochs_of(raw, name, first) for raw, first in zip((pair.ours, pair.theirs), firsts, strict=True)
        )
        assert ours == theirs


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 100])
def test_a_short_timeout_of_a_produce_is_no_reason_to_write_it_twice(
    pair: Pair, acks: int, timeout_ms: int
) -> None:
    """Old clients send 0 or 100 ms: in Kafka replicas have answered by then, or are not asked."""
    body = produce_body((TOPIC_NAME, 0, batch()), acks=acks, timeout_ms=timeout_ms)
    for _ in range(5):
        assert [part.error_code for part in pair.agree(ask_produce, body)] == [0]


def test_a_produce_says_where_the_log_starts_after_a_deletion(pair: Pair) -> None:
    name = "deleted"
    pair.agree(create, name)
    body = produce_body((name, 0, batch(5)))
    assert [part.log_start_offset for part in pair.agree(ask_produce, body)] == [0]
    assert pair.agree(deletion, name, 3) == 0
    until(
        "the new start", lambda: [part.log_start_offset for part in ask_produce(pair.ours, body)] == [3], 60
    )
    assert [part.log_start_offset for part in ask_produce(pair.theirs, body)] == [3]


@pytest.mark.parametrize("length", [4_095, 4_096, 4_097])
@pytest.mark.parametrize("text", ["a", "é", "漢"])
def test_metadata_of_an_offset_is_measured_in_characters(pair: Pair, text: str, length: int) -> None:
    """Of Java: a character beyond U+FFFF is two."""
    assert pair.agree(committed, text * length) == (0 if length <= 4_096 else 12)
    if text == "a":
        pair.agree(committed, "\N{GRINNING FACE}" * (length // 2) + "a" * (length % 2))


def committed(raw: Raw, text: str) -> int:
    """Waits for the group's coordinator, which Kafka creates with its topic."""
    part = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=text
    )
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC_NAME, partitions=[part])
    request = offset_commit.OffsetCommitRequest(
        group_id=GROUP_NAME, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
    )
    codes: list[int] = []

    def answered() -> bool:
        ask(raw, find_coordinator, 3, find_coordinator.FindCoordinatorRequest(key=GROUP_NAME, key_type=0))
        codes.append(ask(raw, offset_commit, 8, request).topics[0].partitions[0].error_code)
        return codes[-1] not in (14, 15, 16)

    until("the offset is committed or refused", answered, 60)
    return codes[-1]


@pytest.mark.parametrize("client_id", [b"b\xfcro", b"\xff\xfe\x00", b"a\xed\xa0\x80b", "büro".encode()])
def test_a_client_id_may_be_any_bytes(addresses: tuple[str, str], client_id: bytes) -> None:
    """A host name in Latin-1 is common. Kafka reads each byte that is not UTF-8 as U+FFFD."""
    for address in addresses:
        with Raw.to(address) as raw:
            for correlation_id in (1, 2):
                header = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, correlation_id, len(client_id))
                raw.frame(header + client_id)
                assert struct.unpack_from(">ih", raw.answer()) == (correlation_id, 0)
