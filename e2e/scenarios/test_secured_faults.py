"""Two front doors of two workers each, with SASL_SSL and ACLs, under load, and etcd that goes away.

Laws: a denial holds everywhere at the latest a second after the administrator had the answer: no request that is sent
later is allowed, in any worker of any front door, nor in a service that decides itself. While etcd is away for less
than KAFSCALE_ACCESS_STALE_MS, clients log in and read. If it is away for longer, every connection is closed and none is
accepted; clients are served again when etcd is back. `make access-outage` has the default of that setting, and etcd is
away for ten seconds and for ten minutes.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafscale.runtime.ports import free_port
from kafscale.storage.access_view import CONFIRM_EVERY_S
from kafscale.testkit.authority import Authority
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import find_coordinator, list_offsets, metadata, offset_fetch

from e2e.harness.deployment import Deployment
from e2e.harness.raw import Closed, Wire
from e2e.harness.secured import done, filter_of, logged_in, rule, settings_of
from e2e.harness.services import Service, until

HOST = "127.0.0.1"
ADMINS, ALICES = "admins-password", "alices-password"
TOPIC, GROUP, HIDDEN, LOAD = "orders", "readers", "hidden", "load"
RECORD = b"record"
AT_LENGTH = "ACCESS_OUTAGE" in os.environ
STALE_S = 300.0 if AT_LENGTH else 10.0  # the default, or the least that the setting allows
MOMENT_S = 10.0 if AT_LENGTH else 0.0  # etcd is away at least as long
AWAY_S = 600.0 if AT_LENGTH else 0.0
VISIBLE_S = 1.0
ROUNDS = 3
CONNECTIONS = 6  # to each front door, whose workers share them
AGAIN_S = 1.0  # between the tries of clients that are shut out
PAUSE_S = 0.05  # between the requests of one connection, so that the requests are no flood
TRIES = 5
Gone = (OSError, EOFError, Closed)

pytestmark = pytest.mark.timeout(1800 if AT_LENGTH else 600)


@dataclass(frozen=True)
class Secured:
    deployment: Deployment
    doors: tuple[str, ...]
    ca: Path

    def settings(self, user: str, password: str, bootstrap: str | None = None) -> dict[str, Any]:
        return settings_of(bootstrap or ",".join(self.doors), self.ca, user, password)

    async def connect(self, door: str) -> Wire:
        return await logged_in(door, self.ca, "alice", ALICES)

    @contextmanager
    def without_etcd(self) -> Iterator[None]:
        """It neither answers nor breaks connections."""
        self.deployment.etcd.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.deployment.etcd.signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured-faults")
    authority = Authority(folder / "tls")
    files = authority.issue(HOST)
    first = folder / "first-users"
    first.write_text(f"admin:{ADMINS}\n")
    deployment = Deployment(folder, 1, on_s3=False)
    doors = tuple(f"{HOST}:{free_port()}" for _ in range(2))
    env = {
        "KAFSCALE_FRONTDOOR_WORKERS": "2",
        "KAFSCALE_SSL_CERTIFICATE": str(files.certificate),
        "KAFSCALE_SSL_KEY": str(files.key),
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,PLAIN",
        "KAFSCALE_AUTHORIZER": "acl",
        "KAFSCALE_SUPER_USERS": "User:admin",
        "KAFSCALE_BOOTSTRAP_USERS_FILE": str(first),
        "KAFSCALE_ACCESS_STALE_MS": str(int(STALE_S * 1000)),
    }
    try:
        deployment.start_etcd()
        deployment.start_services(env, roles=("produce", "fetch", "coordinator", "admin"))
        for number, door in enumerate(doors, 1):
            own = {"KAFSCALE_NODE_ID": str(number), "KAFSCALE_LISTENERS": f"SASL_SSL://{door}"}
            log = folder / "log" / f"frontdoor-{number}.log"
            deployment.services[f"frontdoor-{number}"] = Service.start(
                "frontdoor", {**deployment.env, **env, **own}, log
            )
        deployment.wait_ready()
        one = Secured(deployment, doors, authority.ca)
        populate(one)
        yield one
    finally:
        deployment.kill()


def populate(secured: Secured) -> None:
    """Alice, who may read, a record, and a topic for the load."""
    admin = AdminClient(secured.settings("admin", ADMINS))
    alice = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    done(admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", alice, ALICES.encode())]))
    done(admin.create_topics([NewTopic(name, 1, 1) for name in (TOPIC, LOAD)]))
    allowed = [
        rule("alice", AclOperation.READ, kind, name)
        for kind, name in (
            (ResourceType.TOPIC, TOPIC),
            (ResourceType.GROUP, GROUP),
            (ResourceType.GROUP, HIDDEN),
        )
    ]
    done(admin.create_acls(allowed))
    producer = Producer(secured.settings("admin", ADMINS))
    producer.produce(TOPIC, RECORD)
    assert producer.flush(60) == 0
    until("alice reads by each front door", lambda: all(reads(secured, door) for door in secured.doors))


# ---- a denial is seen everywhere


@dataclass(frozen=True)
class Question:
    """A request that ACLs decide, and where. `error` takes the code from the answer."""

    decides: str
    api: ModuleType
    version: int
    message: object
    error: Callable[[Any], int]


QUESTIONS = (
    Question(
        "front door",
        find_coordinator,
        4,
        find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[HIDDEN]),
        lambda answer: int(answer.coordinators[0].error_code),
    ),
    Question(
        "admin",
        metadata,
        9,
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)]),
        lambda answer: int(answer.topics[0].error_code),
    ),
    Question(
        "fetch",
        list_offsets,
        7,
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsRequestTopic(
                    name=TOPIC,
                    partitions=[list_offsets.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)],
                )
            ],
        ),
        lambda answer: int(answer.topics[0].partitions[0].error_code),
    ),
    Question(
        "coordinator",
        offset_fetch,
        5,
        offset_fetch.OffsetFetchRequest(
            group_id=GROUP, topics=[offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])]
        ),
        lambda answer: int(answer.topics[0].partitions[0].error_code),
    ),
)
DENIED = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED}


@dataclass(slots=True)
class Asker:
    """One connection that asks the same question again and again. Times are monotonic seconds."""

    wire: Wire
    question: Question
    allowed_s: float = 0.0
    """When the last request was sent that was allowed."""

    async def until(self, denied: bool) -> None:
        """Until the answer is this one, and once more."""
        while await self._is_denied() is not denied:
            pass
        assert await self._is_denied() is denied, f"{self.question.decides} has changed its mind"

    async def _is_denied(self) -> bool:
        await asyncio.sleep(PAUSE_S)
        sent_s, question = time.monotonic(), self.question
        answer = await self.wire.ask(question.api, question.version, question.message)
        if question.error(answer) in DENIED:
            return True
        self.allowed_s = sent_s
        return False


@dataclass(slots=True)
class Writer:
    """The load: records over all front doors until it is stopped."""

    producer: Producer
    written: int = 0
    errors: list[object] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.is_set():
            for _ in range(50):
                self.producer.produce(LOAD, bytes(100), on_delivery=self._delivered)
            self.producer.poll(0.1)
        self.producer.flush(60)

    def _delivered(self, error: object, _: object) -> None:
        if error is None:
            self.written += 1
        else:
            self.errors.append(error)


@contextmanager
def load(secured: Secured) -> Iterator[Writer]:
    writer = Writer(Producer(secured.settings("admin", ADMINS)))
    thread = threading.Thread(target=writer.run, daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop.set()
        thread.join(90)


def test_a_denial_is_seen_everywhere_within_a_second(secured: Secured) -> None:
    admin = AdminClient(secured.settings("admin", ADMINS, secured.doors[0]))
    denials = [
        rule("alice", AclOperation.DESCRIBE, kind, name, AclPermissionType.DENY)
        for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, HIDDEN))
    ]

    async def run() -> list[tuple[float, str]]:
        """Of each round and connection: for how long after the answer a request was still allowed, and by whom."""
        askers = [
            Asker(await secured.connect(door), question)
            for door in secured.doors
            for question in QUESTIONS
            for _ in range(CONNECTIONS if question.decides == "front door" else 1)
        ]
        late = []
        for _ in range(ROUNDS):
            await together(asker.until(denied=False) for asker in askers)
            asking = asyncio.ensure_future(together(asker.until(denied=True) for asker in askers))
            await asyncio.to_thread(lambda: done(admin.create_acls(denials)))
            answered_s = time.monotonic()
            async with asyncio.timeout(60):
                await asking
            late += [(asker.allowed_s - answered_s, asker.question.decides) for asker in askers]
            await asyncio.to_thread(lambda: done(admin.delete_acls([filter_of(acl) for acl in denials])))
        for asker in askers:
            asker.wire.close()
        return late

    with load(secured) as writer:
        until("the load has begun", lambda: writer.written > 100)
        late = asyncio.run(run())
    assert max(late)[0] < VISIBLE_S, sorted(late)[-5:]
    assert writer.errors == []


async def together(askers: Any) -> None:
    async with asyncio.TaskGroup() as tasks:
        for asker in askers:
            tasks.create_task(asker)


# ---- etcd is away


def reads(secured: Secured, door: str) -> bool:
    """Whether a new client logs in, finds the topic and reads its record."""
    # It commits nothing: a commit needs etcd, and a consumer that closes waits for it.
    own = {"group.id": GROUP, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**secured.settings("alice", ALICES, door), **own})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(10.0)
        return message is not None and message.error() is None and message.value() == RECORD
    finally:
        consumer.close()


async def answers(wire: Wire) -> bool:
    """Whether an open connection is served."""
    question = QUESTIONS[1]
    with suppress(*Gone, TimeoutError):
        async with asyncio.timeout(10):
            answer = await wire.ask(question.api, question.version, question.message)
            return question.error(answer) == ErrorCode.NONE
    return False


async def refused(secured: Secured) -> None:
    """No front door, in none of its workers, lets a client in."""
    for door in secured.doors:
        for _ in range(CONNECTIONS):
            with pytest.raises(Gone):
                await secured.connect(door)


async def within(limit_s: float, served: Callable[[], Awaitable[bool]]) -> bool | None:
    """Whether clients are served; None if the machine was too slow to say."""
    began_s = time.monotonic()
    good = await served()
    return good if time.monotonic() - began_s < limit_s else None


def test_while_etcd_is_away_for_a_moment_clients_log_in_and_read(secured: Secured) -> None:
    limit_s = STALE_S - CONFIRM_EVERY_S - 1.0  # so old may a copy be before etcd goes away

    async def run() -> bool | None:
        wires = [await secured.connect(door) for door in secured.doors]

        async def served() -> bool:
            new = [await asyncio.to_thread(reads, secured, door) for door in secured.doors]
            return all(new) and all([await answers(wire) for wire in wires])

        assert await served(), "before"
        with secured.without_etcd():
            end_s = time.monotonic() + MOMENT_S
            found = await within(limit_s, served)
            while found and time.monotonic() < end_s:
                found = await served()
        if found:
            assert await served(), "afterwards, on the same connections"
        for wire in wires:
            wire.close()
        return found

    for _ in range(TRIES):
        if (found := asyncio.run(run())) is not None:
            assert found
            return
        until("etcd is back", lambda: all(reads(secured, door) for door in secured.doors))
    pytest.fail(f"{TRIES} times this took longer than {limit_s:.0f} s")


# asyncio of Python 3.11 sometimes leaves a socket of this test open after a front door has closed it. Why is not known.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_when_etcd_is_away_for_too_long_clients_are_shut_out_until_it_is_back(secured: Secured) -> None:
    async def run() -> None:
        wires = [await secured.connect(door) for door in secured.doors for _ in range(CONNECTIONS)]
        with secured.without_etcd():
            end_s = time.monotonic() + AWAY_S
            async with asyncio.timeout(STALE_S + 30):
                closed = await asyncio.gather(*(wire.reader.read() for wire in wires), return_exceptions=True)
            assert all(isinstance(one, OSError) or one == b"" for one in closed), closed
            await refused(secured)
            while time.monotonic() < end_s:
                await asyncio.sleep(AGAIN_S)
                await refused(secured)
        for wire in wires:
            wire.writer.transport.abort()  # close() would wait for the other end

    assert all(reads(secured, door) for door in secured.doors)
    asyncio.run(run())
    gc.collect()  # here, and not in a test that does not expect it
    until("clients are served again", lambda: all(reads(secured, door) for door in secured.doors))
    for number in (1, 2):
        service = secured.deployment.services[f"frontdoor-{number}"]
        assert service.process.poll() is None, "it has not ended"
