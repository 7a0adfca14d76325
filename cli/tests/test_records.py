"""What produce and consume do at a Kafka (librdkafka's, in this process)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, Message
from kafscale.cli.records import consume as module
from kafscale.cli.records.consume import ConsumePlan, consume
from kafscale.cli.records.produce_command import _hint
from kafscale.client.admin_client import Client
from kafscale.client.json_lines import Record, from_line, to_line
from kafscale.operations.positions import Base, Position

from .mock_kafka import MockKafka, mock_kafka

SENT = [
    Record(
        partition=0,
        timestamp_ms=1_000,
        key=b"\xff\x00",
        value=b"\xfe\n",
        headers=(("h", b"\x80"), ("n", None)),
    ),
    Record(partition=0, timestamp_ms=2_000, key=b"k", value=None),
    Record(partition=0, timestamp_ms=3_000, value=b""),
    Record(partition=3, timestamp_ms=4_000, key=b"", value="größer".encode()),
]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockKafka]:
    with mock_kafka(monkeypatch) as found:
        yield found


def lines(records: list[Record]) -> bytes:
    return b"".join(to_line(record) + b"\n" for record in records)


def read(kafka: MockKafka, line: str) -> list[Record]:
    return [from_line(each) for each in kafka.ok(f"{line} --exit --output json").splitlines()]


def content(records: list[Record]) -> list[tuple[Any, ...]]:
    """In the order of partitions and offsets."""
    ordered = sorted(records, key=lambda record: (record.partition, record.offset or 0))
    return [(each.partition, each.timestamp_ms, each.key, each.value, each.headers) for each in ordered]


def test_consume_into_produce_copies_a_topic(kafka: MockKafka) -> None:
    kafka.ok("produce one --input json", lines(SENT))
    assert content(read(kafka, "consume one")) == content(SENT)
    kafka.ok("produce two --input json", kafka.ok("consume one --exit --output json"))
    copied = read(kafka, "consume two")
    assert content(copied) == content(SENT)
    assert {record.topic for record in copied} == {"two"}, "the argument wins over the topic in the line"
    together = [replaced for name in ("three", "four") for replaced in named(name)]
    kafka.ok("produce --input json", lines(together))
    assert content(read(kafka, "consume three")) == content(SENT)
    assert len(read(kafka, "consume three four")) == 2 * len(SENT)


def named(topic: str) -> list[Record]:
    return [
        from_line(to_line(record).replace(b'"topic": null', f'"topic": "{topic}"'.encode()))
        for record in SENT
    ]


def test_text_in_and_out(kafka: MockKafka) -> None:
    line = [
        "produce",
        "text",
        "-K",
        "::",
        "-Z",
        "-p",
        "1",
        "-H",
        "a=1",
        "-H",
        "b=",
        "--timestamp",
        "2026-01-31T08:00",
    ]
    kafka.ok(line, b"k::v::w\nno key\ngone::\n\xff")
    assert content(read(kafka, "consume text")) == [
        (1, 1_769_846_400_000, key, value, (("a", b"1"), ("b", b"")))
        for key, value in ((b"k", b"v::w"), (None, b"no key"), (b"gone", None), (None, b"\xff"))
    ]
    assert kafka.ok("consume text --exit") == b"v::w\nno key\n\n\xff\n"
    assert kafka.ok("consume text --exit --keys --null") == b"k\tv::w\nNULL\tno key\ngone\tNULL\nNULL\t\xff\n"
    assert (
        kafka.ok(["consume", "text", "--exit", "-f", r"%t/%p/%o %k;"])
        == b"text/1/0 k;text/1/1 ;text/1/2 gone;text/1/3 ;"
    )
    kafka.ok("produce text -p 2 --key all", b"x\n")
    assert kafka.ok("consume text --exit -p 2 -k") == b"all\tx\n"


def test_what_was_sent_is_shown_and_counted(kafka: MockKafka) -> None:
    done = kafka.run("produce shown -p 2 --output json", b"a\nb\n")
    assert [json.loads(each) for each in done.stdout.splitlines()] == [
        {"topic": "shown", "partition": 2, "offset": offset} for offset in (0, 1)
    ]
    assert done.stderr == "2 records acknowledged\n"


def test_where_reading_begins_and_ends(kafka: MockKafka) -> None:
    for number in (0, 2):
        kafka.ok(
            f"produce log -p {number}",
            b"".join(b"%d\n" % value for value in range(number * 10, number * 10 + 10)),
        )

    def shown(options: str) -> list[int]:
        return sorted(map(int, kafka.ok(f"consume log --exit {options}").split()))

    assert shown("") == [*range(10), *range(20, 30)]
    assert shown("-p 2") == [*range(20, 30)]
    assert shown("-p 0-1,3 -o -2") == [8, 9]
    assert shown("-o +8") == [8, 9, 28, 29]
    assert shown("-o 7 -u 9") == [7, 8, 27, 28]
    assert shown("-o -3 --until -1") == [7, 8, 27, 28]
    assert shown("-o 5 -u 5") == []
    assert shown("-o end") == []
    assert len(shown("--count 3")) == 3
    assert kafka.ok("consume log -p 0 --until 2") == b"0\n1\n", "it ends without --exit"


def test_topics_by_pattern(kafka: MockKafka) -> None:
    for topic in ("orders-eu", "orders-us", "clicks", "__orders"):
        kafka.ok(f"produce {topic}", topic.encode())
    assert set(kafka.ok("consume -r orders --exit").split()) == {b"orders-eu", b"orders-us"}
    assert set(kafka.ok("consume -r ^orders-e ^cl --exit").split()) == {b"orders-eu", b"clicks"}
    nothing = kafka.run("consume -r ^nothing --exit")
    assert nothing.stderr == "kafscale: no topic matches ^nothing; `kafscale topics list` shows all\n"


@pytest.mark.parametrize(
    ("line", "stdin", "sentence"),
    [
        ("consume nix --exit", b"", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        ("consume there -p 9 --exit", b"", "topic 'there' has no partition 9"),
        ("produce there -p 9", b"x\n", "topic 'there' has no partition 9"),
        ("offsets there -p 9", b"", "topic 'there' has no partition 9"),
        ("offsets nix", b"", "topic 'nix' does not exist; `kafscale topics list` shows what does"),
        (
            "produce there --input json",
            b'{"value": "a"}\n{"valeu": "b"}\n',
            "1 record acknowledged\nkafscale: line 2: the record has the unknown field valeu",
        ),
        (
            "produce --input json",
            b'{"value": "a"}\n',
            "line 1: no topic; name one in the line or as the argument",
        ),
    ],
)
def test_what_cannot_be_done_is_a_sentence(kafka: MockKafka, line: str, stdin: bytes, sentence: str) -> None:
    kafka.ok("produce there", b"x\n")
    done = kafka.run(line, stdin)
    assert done.exit_code == 1
    assert sentence in done.stderr
    assert "Broker: " not in done.stderr
    assert "Local: " not in done.stderr


def test_a_record_that_is_too_large_fails_alone(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.cli.records.produce.RECORD_BYTES_MAX", 1_000)
    done = kafka.run("produce sized -p 0", b"a\n" + 2_000 * b"x" + b"\nb\n")
    assert (done.exit_code, kafka.ok("consume sized --exit")) == (1, b"a\nb\n")
    assert done.stderr.startswith(
        "2 records acknowledged\nkafscale: 1 record failed, the first with: topic 'sized': "
    )
    assert "(MESSAGE_TOO_LARGE)" in done.stderr


class LosesItsLogin:
    """A producer whose login is refused when it has `given` records: `answered` of them are acknowledged first."""

    given: ClassVar[int]
    answered: ClassVar[int]

    def __init__(self, settings: dict[str, Any]) -> None:
        self._refuse = settings["error_cb"]
        self._waiting: list[Callable[[KafkaError | None, Message[bytes, bytes]], None]] = []
        self._sent = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def produce(self, *words: Any, **_: object) -> None:
        self._waiting.append(words[4])
        self._sent += 1
        if self._sent == self.given:
            self._refuse(KafkaError(KafkaError._AUTHENTICATION, "the password is old"))

    def poll(self, _wait_s: float) -> None:
        """Answers come late: only `flush` waits for them."""

    def flush(self, _wait_s: float) -> int:
        while self._waiting and self._sent - len(self._waiting) < self.answered:
            self._waiting.pop(0)(None, Message(topic="orders", partition=0, offset=0))
        return len(self._waiting)


DISAGREE = "and this client do not agree (the password is old); look at the file of --command-config"


@pytest.mark.parametrize(
    ("given", "answered", "said"),
    [
        (
            5,
            3,
            f"3 records acknowledged\nkafscale: HERE {DISAGREE}; 2 records may have been written or not\n",
        ),
        (
            3,
            1,
            f"1 record acknowledged\nkafscale: HERE {DISAGREE}; 2 records may have been written or not; "
            "nothing was sent from line 4 on\n",
        ),
        (
            4,
            4,
            f"4 records acknowledged\nkafscale: HERE {DISAGREE}; nothing was sent from line 5 on\n",
        ),
    ],
)
def test_a_login_that_is_refused_under_way_does_not_hide_what_was_written(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, given: int, answered: int, said: str
) -> None:
    monkeypatch.setattr("kafscale.cli.records.produce.Producer", LosesItsLogin)
    monkeypatch.setattr("kafscale.cli.records.produce.UNSENT_MAX", given)
    monkeypatch.setattr(LosesItsLogin, "given", given, raising=False)
    monkeypatch.setattr(LosesItsLogin, "answered", answered, raising=False)
    done = kafka.run("produce orders", b"a\nb\nc\nd\ne\n")
    assert done.exit_code == 1
    assert done.stderr == said.replace("HERE", kafka.bootstrap)


class GivesUp(LosesItsLogin):
    """Its first record has no answer in time, and a server refuses the second. The third is still under way."""

    given, answered = 0, 0

    def flush(self, _wait_s: float) -> int:
        codes = {3: KafkaError._MSG_TIMED_OUT, 2: KafkaError.TOPIC_AUTHORIZATION_FAILED}
        while (left := len(self)) > 1:
            message = Message(topic="orders", partition=0, offset=0)
            self._waiting.pop(0)(KafkaError(codes[left]), message)
        return left


def test_a_record_without_an_answer_did_not_fail(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.cli.records.produce.Producer", GivesUp)
    monkeypatch.setattr("kafscale.cli.records.produce.DELIVERY_TIMEOUT_S", 0.0)
    done = kafka.run("produce orders", b"a\nb\nc\n")
    assert done.exit_code == 1
    assert done.stderr.startswith("0 records acknowledged\nkafscale: 1 record failed, the first with: ")
    assert "(TOPIC_AUTHORIZATION_FAILED)" in done.stderr
    assert done.stderr.endswith(
        "; topic 'orders': no answer in time; 2 records may have been written or not\n"
    )


def test_offsets_of_a_position(kafka: MockKafka) -> None:
    kafka.ok("produce placed -p 1", b"a\nb\nc\n")
    rows = json.loads(kafka.ok("offsets placed --at -1 -p 0-1 --output json"))
    assert rows == [
        {"topic": "placed", "partition": 0, "offset": 0, "start": 0, "end": 0},
        {"topic": "placed", "partition": 1, "offset": 2, "start": 0, "end": 3},
    ]


def test_deleting_records_shows_first_and_asks_for_yes(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[dict[tuple[str, int], int]] = []
    monkeypatch.setattr("kafscale.client.topics.delete_before", lambda _, offsets: deleted.append(offsets))
    kafka.ok("produce doomed -p 1", b"a\nb\nc\n")
    monkeypatch.setattr("kafscale.operations.deletions.readers_of", lambda *_: {("slow", "doomed"): {1: 1}})
    refused = kafka.run("delete-records doomed --before end")
    assert (refused.exit_code, "nobody can be asked here" in refused.stderr) == (2, True)
    dry = kafka.run("delete-records doomed --before 2 --dry-run --output json")
    row = {"topic": "doomed", "partition": 1, "start": 0, "start_after": 2, "records": 2}
    loss = {"group": "slow", "topic": "doomed", "partition": 1, "committed": 1, "start": 2, "records": 1}
    assert json.loads(dry.stdout) == {"plan": [row], "losses": [loss]}
    assert "slow 1" in dry.stderr
    assert kafka.run("delete-records doomed --before 0 --yes").stderr.endswith(
        "deleted 0 records of topic 'doomed'\n"
    )
    assert deleted == []
    done = kafka.run("delete-records doomed --before -2 --yes")
    assert done.stderr.endswith("deleted 1 record of topic 'doomed'\n")
    assert deleted == [{("doomed", 1): 1}], "partitions that lose nothing are not in the request"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [("y", 0, "deleted 3 records of topic 'asked'"), ("n", 1, "nothing was changed")],
)
def test_deleting_records_asks_a_person(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, said: str
) -> None:
    deleted: list[object] = []
    monkeypatch.setattr("kafscale.client.topics.delete_before", lambda *words: deleted.append(words))
    monkeypatch.setattr("kafscale.operations.deletions.readers_of", lambda *_: {})
    monkeypatch.setattr("kafscale.cli.consent.on_terminal", lambda: True)
    kafka.ok("produce asked -p 1", b"a\nb\nc\n")
    done = kafka.run("delete-records asked --before end", answer.encode())
    assert (done.exit_code, len(deleted)) == (code, 1 - code)
    assert "3 records of topic 'asked'" in done.stderr
    assert said in done.stderr


class Typed(BytesIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("is_json", "separator", "hint"),
    [
        (False, None, "type one record per line; Ctrl-D ends"),
        (False, ":", "type one record per line, as key:value; Ctrl-D ends"),
        (True, None, 'type one JSON object per line, such as {"key": "k", "value": "v"}; Ctrl-D ends'),
    ],
)
def test_a_person_is_told_what_to_type(
    is_json: bool, separator: str | None, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _hint(BytesIO(), is_json, separator)
    assert capsys.readouterr().err == ""
    _hint(Typed(), is_json, separator)
    assert capsys.readouterr().err == f"{hint}\n"


PLAN = ConsumePlan(
    topics=("later",),
    by_pattern=False,
    group=None,
    partitions=None,
    start=Position(Base.BEGINNING),
    reset="earliest",
    until=None,
    stop_at_end=False,
    count_max=None,
)


class Enough(Exception):
    """Ends a reading that has no end."""


def enough(_: str) -> None:
    raise Enough


def nothing(_: str) -> None:
    return


def test_a_topic_is_awaited_and_the_user_is_told(kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPIC_POLL_S", 0.01)
    said: list[str] = []

    def notify(sentence: str) -> None:
        said.append(sentence)
        kafka.ok("produce later", b"first\n")

    reading = consume(Client(kafka.bootstrap), PLAN, notify, nothing)
    assert [record.value for record in next(reading)] == [b"first"]
    reading.close()
    assert said == [
        "topic 'later' does not exist; `kafscale topics list` shows what does. Waiting for it; Ctrl-C ends"
    ]
    with pytest.raises(Enough):
        next(consume(Client(kafka.bootstrap), replace(PLAN, start=Position(Base.END)), nothing, enough))


class Member:
    """A consumer that has two records."""

    stored: ClassVar[list[int]] = []

    def __init__(self, _config: object) -> None:
        self._waiting = [
            Message(topic="later", partition=0, offset=offset, timestamp=(1, 1)) for offset in (0, 1)
        ]

    def subscribe(self, _topics: object, **_callbacks: object) -> None:
        return

    assign = pause = subscribe

    def poll(self, _timeout_s: float) -> Message[bytes, bytes] | None:
        return self._waiting.pop(0) if self._waiting else None

    def store_offsets(self, message: Message[bytes, bytes]) -> None:
        self.stored.append(message.offset() or 0)

    def close(self) -> None:
        return


def test_a_group_commits_only_what_the_caller_has_taken(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.ok("produce later", b"a\n")
    monkeypatch.setattr(module, "Consumer", Member)
    reading = consume(Client(kafka.bootstrap), replace(PLAN, group="g", count_max=2), nothing, nothing)
    assert [record.offset for record in next(reading)] == [0, 1]
    assert Member.stored == [], "it may be killed before it has printed them"
    assert list(reading) == []
    assert Member.stored == [0, 1]


def test_what_had_been_fetched_beyond_the_end_is_not_shown(
    kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.ok("produce later -p 0", b"a\nb\n")
    monkeypatch.setattr(module, "Consumer", Member)
    plan = replace(PLAN, until=Position(Base.ZERO, 1))
    (batch,) = consume(Client(kafka.bootstrap), plan, nothing, nothing)
    assert [record.offset for record in batch] == [0]
