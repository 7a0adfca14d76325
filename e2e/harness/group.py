"""A consumer group of real members. Each is a client program in a separate process that prints its events."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from e2e.checkers.group_history import Event, Kind, holders, parse
from e2e.harness.clients import Client
from e2e.harness.cluster import Cluster
from e2e.harness.disk import DiskWatch
from e2e.harness.services import dying_with_parent

WAIT_TIMEOUT_S = 120.0
"""For a state to come; whether it came in time is the checker's to say."""
LEAVE_TIMEOUT_S = 30.0
REBALANCE_S = 3.0
RECORDS_PER_S = 20
ASK_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the members of one group are configured."""

    client: Client
    protocol: str = "classic"
    assignor: str = "range"

    @property
    def name(self) -> str:
        return f"{self.client.name}-{self.assignor if self.protocol == 'classic' else 'consumer'}"


@contextmanager
def cluster_for_groups(data_dir: Path, partitions: int, session_ms: int) -> Iterator[Cluster]:
    """Runs in the block. Members of the new protocol get the session timeout that classic ones ask for."""
    env = {
        "KAFSCALE_NUM_PARTITIONS": str(partitions),
        "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(session_ms),
        "KAFSCALE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "1000",
    }
    cluster = Cluster(data_dir=data_dir, env=env)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


@dataclass(slots=True)
class Member:
    name: str
    process: subprocess.Popen[str]
    stderr: Path
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: bool = False
    _reader: threading.Thread | None = None

    def follow(self, changed: threading.Condition) -> None:
        self._reader = threading.Thread(target=self._read, args=(changed,), name=self.name, daemon=True)
        self._reader.start()

    def _read(self, changed: threading.Condition) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                if not line.endswith("\n"):
                    continue  # cut by SIGKILL
                event = parse(self.name, line)
                with changed:
                    self.events.append(event)
                    if event.kind is not Kind.RECORD:
                        self.notes.append(line.strip())
                    changed.notify_all()

    def died(self) -> bool:
        return not self.ended and self.process.poll() is not None

    def end(self, number: signal.Signals) -> int:
        """The exit code; all its events are read when this returns."""
        self.ended = True
        self.process.send_signal(number)
        return self.await_end()

    def await_end(self) -> int:
        self.ended = True
        code = self.process.wait(LEAVE_TIMEOUT_S)
        assert self._reader is not None
        self._reader.join(LEAVE_TIMEOUT_S)
        return code


@dataclass(slots=True)
class Group:
    """Members come and go; `events` is what all of them saw so far."""

    variant: Variant
    bootstrap: str
    topic: str
    session_ms: int
    folder: Path
    security: Path | None = None  # the file that says how members get in (security_settings.py)
    members: dict[str, Member] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _disk: DiskWatch = field(init=False)
    _longest_session_ms: int = 0

    def __post_init__(self) -> None:
        self._disk = DiskWatch(self.folder / f"{self.name}.disk")

    @property
    def name(self) -> str:
        """Its own, so that no member that another test killed is still in it."""
        return f"group-of-{self.topic}"

    @property
    def gap_max_s(self) -> float:
        """How long a partition may be without a member. A static one may be away for its session: as long as its client
        takes to start again, which for a JVM on a busy machine is more than a rebalance."""
        return self.bound_s(self._longest_session_ms)

    def bound_s(self, session_ms: int) -> float:
        """A session, a rebalance, and what the disk stood still."""
        return session_ms / 1000 + REBALANCE_S + self._disk.still_s

    def join(self, name: str, instance: str = "", variant: Variant | None = None) -> None:
        """With an instance id it is a static member."""
        variant = variant or self.variant
        self._longest_session_ms = max(self._longest_session_ms, self.session_ms)
        arguments = {
            "mode": "group",
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "name": name,
            "group": self.name,
            "protocol": variant.protocol,
            "assignor": variant.assignor,
            "session-ms": str(self.session_ms),
            **({"instance": instance} if instance else {}),
            **({"security": str(self.security)} if self.security else {}),
        }
        command = [*dying_with_parent(), *variant.client.command()]
        stderr = self.folder / f"{self.name}-{name}.err"
        with stderr.open("w") as errors:
            process = subprocess.Popen(
                [*command, *(part for key, value in arguments.items() for part in (f"--{key}", value))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.members[name] = Member(name, process, stderr)
        self.members[name].follow(self._changed)

    def kill(self, name: str) -> None:
        """kill -9; holds nothing from here on."""
        self.members[name].end(signal.SIGKILL)
        self._note(name, Kind.KILLED)

    def replace(self, name: str, by: str, instance: str) -> str:
        """Another process with its instance id; the error that ends the first."""
        self._note(name, Kind.FENCED)
        self.join(by, instance)
        return self.fatal(name)

    def fatal(self, name: str) -> str:
        """What a member says of the error that ends it, once it has ended."""
        member = self.members[name]
        try:
            member.await_end()
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{name} does not end:\n{self.story()}") from late
        found = [note for note in member.notes if json.loads(note)["event"] == Kind.FATAL.value]
        assert found, f"{name} ended without a fatal error:\n{self.story()}"
        return found[0] + member.stderr.read_text()

    def wait_complaint(self, name: str, text: str) -> None:
        """Until the member has said so; it may end by it."""
        member = self.members[name]
        member.ended = True
        self.wait_for(f"{name} hears {text}", lambda _: any(text in note for note in member.notes))

    def _note(self, name: str, kind: Kind) -> None:
        with self._changed:
            self.members[name].events.append(Event(name, kind, time.monotonic()))

    def leave(self, name: str) -> None:
        try:
            code = self.members[name].end(signal.SIGTERM)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{name} does not leave:\n{self.story()}") from late
        assert code == 0, f"{name} left with code {code}:\n{self.story()}"
        assert any(event.kind is Kind.LEFT for event in self.members[name].events), self.story()

    def end(self) -> None:
        self._disk.stop()
        for member in self.members.values():
            if member.process.poll() is None:
                member.end(signal.SIGKILL)

    def events(self) -> list[Event]:
        with self._changed:
            return self._events()

    def _events(self) -> list[Event]:
        return [event for member in self.members.values() for event in member.events]

    def wait_for(self, what: str, condition: Callable[[list[Event]], bool]) -> None:
        """Until the events so far satisfy the condition."""
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        with self._changed:
            while not condition(self._events()):
                left = deadline - time.monotonic()
                assert left > 0, f"{self.name}: not within {WAIT_TIMEOUT_S} s: {what}\n{self.story()}"
                died = [each.name for each in self.members.values() if each.died()]
                assert not died, f"{self.name}: {', '.join(died)} died\n{self.story()}"
                self._changed.wait(min(left, 1.0))

    def wait_covered_by(self, partitions: int, *members: str) -> None:
        """Until every partition has one owner, these members have some each, and each has read since."""
        begin = time.monotonic()

        def covered(events: list[Event]) -> bool:
            found = holders(events)
            owners = {member for each in found.values() for member in each}
            reading = {each.member for each in events if each.kind is Kind.RECORD and each.at > begin}
            one_each = len(found) == partitions and all(len(each) == 1 for each in found.values())
            return one_each and owners == set(members) and owners <= reading

        self.wait_for(f"all {partitions} partitions with {', '.join(members)}", covered)

    def story(self) -> str:
        """What the members saw and complained about, for a failing test's message."""
        parts = [
            f"--- {member.name} (exit {member.process.poll()})\n"
            + "\n".join([*_without_commits(member.notes)[-40:], member.stderr.read_text()[-2000:]])
            for member in self.members.values()
        ]
        return "\n".join(parts)

    def committed(self, partitions: int, bootstrap: str | None = None) -> dict[int, int]:
        """The group's offsets, read by another client. `bootstrap`: a listener that lets anybody in."""
        asker = Consumer({"bootstrap.servers": bootstrap or self.bootstrap, "group.id": self.name})
        try:
            asked = [TopicPartition(self.topic, part) for part in range(partitions)]
            return {each.partition: each.offset for each in asker.committed(asked, timeout=ASK_TIMEOUT_S)}
        finally:
            asker.close()


def all_committed(events: list[Event], ends: dict[int, int]) -> bool:
    """A later commit follows every record, so all are read when the last is committed."""
    best: dict[int, int] = defaultdict(int)
    for event in events:
        if event.kind is Kind.COMMITTED:
            best[event.partitions[0]] = max(best[event.partitions[0]], event.offset)
    return best == ends


def _without_commits(notes: Iterable[str]) -> list[str]:
    return [note for note in notes if '"committed"' not in note]


@dataclass(slots=True)
class Feed:
    """Writes to every partition in turn while the group works; `ends` counts what was acknowledged."""

    bootstrap: str
    topic: str
    partitions: int
    records_per_s: int = RECORDS_PER_S
    ends: dict[int, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _begun: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The topic is there in the block; when it is left every record has been acknowledged."""
        thread = threading.Thread(target=self._write, name="feed", daemon=True)
        thread.start()
        try:
            assert self._begun.wait(WAIT_TIMEOUT_S), "no record was acknowledged"
            yield
        finally:
            self._stop.set()
            thread.join()
        assert not self.failed, self.failed[0]

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
        )
        number = 0
        while not self._stop.wait(self.partitions / self.records_per_s):
            for part in range(self.partitions):
                producer.produce(
                    self.topic, str(number).encode(), partition=part, on_delivery=self._delivered
                )
                number += 1
            producer.poll(0)
        if left := producer.flush(WAIT_TIMEOUT_S):
            self.failed.append(f"{left} records were not acknowledged")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        part, offset = message.partition(), message.offset()
        assert part is not None
        assert offset is not None
        self.ends[part] = max(self.ends.get(part, 0), offset + 1)
        self._begun.set()
