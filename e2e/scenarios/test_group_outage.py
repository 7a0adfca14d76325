"""etcd is down for longer than the session timeouts of a group whose members keep sending heartbeats.

Law: no member expires, in either protocol, whether etcd was killed or paused. During the outage members get
NOT_COORDINATOR and similar errors. Then they continue with the same member ids in the same generation.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.wire.errors import ErrorCode

from e2e.harness.committing import BEGIN_S, STUCK_S, TOPIC, System, system_of
from e2e.harness.group_members import Classic, Modern
from e2e.harness.law import nap
from e2e.harness.raw import Wire
from e2e.harness.services import until

SESSION_MS = 6_000
BEAT_S = 0.5
AWAY_S = 16.0
"""Longer than a session and a lease (8 s) together."""
CALL_S = 10.0
AWAY = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The errors after which a client retries with the same member id."""

pytestmark = pytest.mark.timeout(400)


@dataclass(slots=True)
class Beating:
    """A member that only sends heartbeats, on a new connection after each lost one."""

    bootstrap: str
    member: Classic | Modern
    errors: set[int] = field(default_factory=set)
    beats: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self._beat()
        finally:
            self.member.wire.close()
            await self.member.wire.writer.wait_closed()

    async def _beat(self) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                error = await self.member.beat()
        except (OSError, EOFError, TimeoutError):
            await self._reconnect()
            return
        self.errors.add(error)
        self.beats += error == ErrorCode.NONE
        await asyncio.sleep(BEAT_S)

    async def _reconnect(self) -> None:
        self.member.wire.close()
        try:
            self.member.wire = await Wire.open(self.bootstrap, "beating")
        except (OSError, TimeoutError):
            await asyncio.sleep(BEAT_S)


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    env = {"KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_MS)}
    with system_of(tmp_path, 1, env=env) as system:
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(60)
        yield system


def killed(system: System) -> None:
    system.etcd.kill()
    nap(AWAY_S)
    asyncio.run(system.etcd.start())


def stopped(system: System) -> None:
    """Pauses etcd until its leases have expired."""
    pid = system.etcd.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    nap(AWAY_S)
    os.kill(pid, signal.SIGCONT)


async def until_none(call: Callable[[], Awaitable[int]]) -> None:
    """Slots may not have reached their coordinator yet."""
    error = await call()
    while error != ErrorCode.NONE:
        await asyncio.sleep(BEAT_S)
        error = await call()


async def joined_classic(bootstrap: str, group: str) -> Classic:
    member = Classic(await Wire.open(bootstrap), group, session_timeout_ms=SESSION_MS)
    await until_none(member.join)  # the first answer gives it an id
    error, _ = await member.sync({member.member_id: b"part"})
    assert error == ErrorCode.NONE
    return member


async def joined_modern(bootstrap: str, group: str) -> Modern:
    member = Modern(await Wire.open(bootstrap), group, TOPIC, group.ljust(22, "x"))
    await until_none(member.beat)
    return member


@asynccontextmanager
async def beating(system: System) -> AsyncIterator[list[Beating]]:
    stop = asyncio.Event()
    async with asyncio.timeout(BEGIN_S):
        members: list[
            Classic | Modern
        ] = await asyncio.gather(  # at once: no member sends heartbeats before the last has joined
            *(joined_classic(system.bootstrap, f"classic{n}") for n in range(3)),
            *(joined_modern(system.bootstrap, f"modern{n}") for n in range(3)),
        )
    all_of_them = [Beating(system.bootstrap, member) for member in members]
    async with asyncio.TaskGroup() as tasks:
        for each in all_of_them:
            tasks.create_task(each.run(stop))
        try:
            yield all_of_them
        finally:
            stop.set()


async def everybody_beats(members: list[Beating], timeout_s: float) -> None:
    before = [each.beats for each in members]

    def have() -> bool:
        return all(each.beats > count + 3 for each, count in zip(members, before, strict=True))

    what = f"every member beats: {[(each.member.group, each.errors) for each in members]}"
    await asyncio.to_thread(until, what, have, timeout_s)


@pytest.mark.parametrize("away", [killed, stopped], ids=["killed", "stopped"])
async def test_an_outage_of_etcd_longer_than_the_sessions_expires_no_member(
    system: System, away: Callable[[System], None]
) -> None:
    async with beating(system) as members:
        await everybody_beats(members, BEGIN_S)
        who = [(each.member.member_id, each.member.generation) for each in members]
        await asyncio.to_thread(away, system)
        for each in members:
            assert each.errors - {ErrorCode.NONE}, "the outage was long enough to be noticed"
        await everybody_beats(members, STUCK_S)
        assert [each.errors - {ErrorCode.NONE, *AWAY} for each in members] == [set()] * len(members)
        assert [(each.member.member_id, each.member.generation) for each in members] == who
