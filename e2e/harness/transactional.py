"""Transactional producers of real clients, each a process that a test commands step by step, and readers of both
isolation levels."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from e2e.harness.builds import SHORT_LIVED
from e2e.harness.clients import maven_built, python_program, require
from e2e.harness.load import bounds
from e2e.harness.services import dying_with_parent, until

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
OLDER_JAVA = "3.9.2"
"""Before KIP-890 part 2: it speaks the protocol of transactions of before, whatever the cluster offers."""
READ_TIMEOUT_S = 60.0


class Refused(Exception):
    """The client's library raised an error. `name`: of the error, in the words of the library."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.name = text.split(" ", 1)[0]


@cache
def java_command(program: str, version: str | None = None) -> list[str]:
    """A class of the folder `transactions`. `version`: of Kafka's client; None is the pom's."""
    require("a transactional program in Java", "java", "mvn")
    folder = maven_built("transactions", **({} if version is None else {"kafka_version": version}))
    return [
        "java",
        "-Xmx256m",
        *SHORT_LIVED,
        "-cp",
        f"{folder}/classes:{folder}/lib/*",
        f"kafscale.e2e.{program}",
    ]


@dataclass(frozen=True, slots=True)
class Library:
    """Of a transactional producer."""

    name: str
    command: Callable[[], list[str]]


JAVA = Library("java", lambda: java_command("Scripted"))
JAVA_OLDER = Library(f"java-{OLDER_JAVA}", lambda: java_command("Scripted", OLDER_JAVA))
CONFLUENT = Library("confluent", python_program("scripted.py"))


class Scripted:
    """A producer. Each method returns when the library's call has returned, and raises `Refused` if it failed."""

    def __init__(self, library: Library, bootstrap: str, id_: str, timeout_ms: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": id_,
            "transaction.timeout.ms": str(timeout_ms),
        }
        self.process = subprocess.Popen(
            [
                *dying_with_parent(),
                *library.command(),
                *(f"{name}={value}" for name, value in settings.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, *words: object) -> None:
        """Without waiting for its end: `answer` does."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().rstrip("\n")
        kind, _, text = line.partition(" ")
        if kind != "ok":
            raise Refused(text or f"the program ended: {line!r}")
        return text

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.answer()

    def init(self) -> None:
        self.ask("init")

    def begin(self) -> None:
        self.ask("begin")

    def send(self, topic: str, partition: int, value: str) -> None:
        self.ask("send", topic, partition, value)

    def sent(self) -> list[int]:
        """Waits until every record is acknowledged; their offsets."""
        return [int(each) for each in self.ask("sent").split()]

    def commit(self) -> None:
        self.ask("commit")

    def abort(self) -> None:
        self.ask("abort")

    def write(self, topic: str, partition: int, *values: str) -> list[int]:
        """The offsets of records that are acknowledged, in a transaction that stays open."""
        self.begin()
        for value in values:
            self.send(topic, partition, value)
        return self.sent()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def producer(
    library: Library, bootstrap: str, id_: str, *, timeout_ms: int = 60_000, init: bool = True
) -> Iterator[Scripted]:
    """Killed at the end of the block, as the death of a client is."""
    found = Scripted(library, bootstrap, id_, timeout_ms)
    try:
        if init:
            found.init()
        yield found
    finally:
        found.kill()


@contextmanager
def _consumer(bootstrap: str, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": False,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The last stable offset, as ListOffsets says it."""
    with _consumer(bootstrap, COMMITTED) as consumer:
        _, end = bounds(consumer, TopicPartition(topic, partition))
    return int(end)


def read(
    bootstrap: str, topic: str, isolation: str, partition: int = 0, begin: int = OFFSET_BEGINNING
) -> list[tuple[int, str]]:
    """Offset and value of each record up to the end that this isolation level has now."""
    where = TopicPartition(topic, partition, begin)
    found: list[tuple[int, str]] = []
    with _consumer(bootstrap, isolation) as consumer:
        start, end = bounds(consumer, where)
        consumer.assign([where])

        def at_end() -> bool:
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append((int(message.offset() or 0), (message.value() or b"").decode()))
            (at,) = consumer.position([TopicPartition(topic, partition)])
            return int(at.offset) >= end or max(begin, start) >= end

        until(f"{topic} is read to {end}", at_end, READ_TIMEOUT_S)
    return found
