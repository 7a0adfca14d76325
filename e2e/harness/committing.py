"""Coordinators that the test starts and stops, and members of groups that commit all the time.

A member commits to a separate partition and reads the offset back. `checkers/commits.py` checks the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_program import find_etcd
from kafscale.runtime.ports import free_port
from kafscale.wire.errors import ErrorCode

from e2e.checkers.commits import Acknowledged, Event, Read, Refused, Unknown, violations
from e2e.harness.group_members import Classic, Modern, commit, committed
from e2e.harness.raw import Wire
from e2e.harness.services import Service, until

TOPIC = "committed-to"
MEMBERS = 2
BEGIN_S = 90.0
STUCK_S = 30.0
CALL_TIMEOUT_S = 20.0
TURN_S = 0.4
"""Of each member's round: a heartbeat, a commit, a read."""
SESSION_TIMEOUT_MS = 10_000

REFUSALS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
}
"""After these errors the commit was not executed. After others it may have been."""
STRANGERS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


@dataclass(slots=True)
class System:
    """All services, started separately on a directory, so that a test can kill and start coordinators."""

    folder: Path
    etcd: EtcdProcess
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    others: list[Service] = field(default_factory=list)
    coordinators: dict[int, Service] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, *node_ids: int) -> None:
        for role in ("produce", "fetch", "admin", "frontdoor"):
            self.others.append(Service.start(role, self._env(), self._log(role)))
        for node_id in node_ids:
            self.start_coordinator(node_id)
        for service in (*self.others, *self.coordinators.values()):
            service.wait_ready()

    def start_coordinator(self, node_id: int) -> None:
        env = self._env() | {"KAFSCALE_NODE_ID": str(node_id)}
        self.coordinators[node_id] = Service.start("coordinator", env, self._log(f"coordinator-{node_id}"))

    def _log(self, name: str) -> Path:
        return self.folder / "log" / f"{name}.log"

    def _env(self) -> dict[str, str]:
        return {
            "KAFSCALE_ETCD_ENDPOINTS": self.etcd.endpoint,
            "KAFSCALE_OBJECT_STORE": "dir",
            "KAFSCALE_OBJECT_DIR": str(self.folder / "objects"),
            "KAFSCALE_LISTENERS": f"PLAINTEXT://{self.bootstrap}",
            "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            **self.env,
        }

    def kill(self) -> None:
        for service in (*self.others, *self.coordinators.values()):
            service.kill()
        self.etcd.kill()


def nobody_asks() -> None:
    """What a member calls after each acknowledged commit, if nobody says otherwise."""


@dataclass(slots=True)
class Member:
    """Joins its group, again if necessary; commits to its partition, and reads the offset back."""

    bootstrap: str
    group: str
    index: int
    is_modern: bool
    events: list[Event] = field(default_factory=list)
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)
    on_ack: Callable[[], None] = nobody_asks
    _next: int = 0
    _identity: Classic | Modern | None = None

    @property
    def name(self) -> str:
        return f"{self.group}/{self.index}"

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                wire = await Wire.open(self.bootstrap, self.name)
            except (OSError, TimeoutError):
                await _turn(stop)
                continue
            try:
                await self._live(wire, stop)
            except (OSError, EOFError, TimeoutError) as lost:
                self.errors.append(type(lost).__name__)
            finally:
                wire.close()

    async def _live(self, wire: Wire, stop: asyncio.Event) -> None:
        member = self._on(wire)
        is_in = False
        while not stop.is_set():
            async with asyncio.timeout(CALL_TIMEOUT_S):
                error = await (member.beat() if is_in else self._join(member))
                is_in = is_in or error == ErrorCode.NONE
            if error == ErrorCode.NONE:
                # The read comes first: a commit here would replace what another coordinator wrote.
                await self._read(wire)
                error = await self._commit(member)
            if error != ErrorCode.NONE:
                self.errors.append(ErrorCode(error).name)
            if error in REFUSALS:
                is_in = isinstance(member, Modern) and error == ErrorCode.STALE_MEMBER_EPOCH
            if error in STRANGERS:
                member.member_id = member.member_id if isinstance(member, Modern) else ""
                member.generation = 0
            await _turn(stop)

    def _on(self, wire: Wire) -> Classic | Modern:
        """The same member on a new connection."""
        if self._identity is None:
            self._identity = (
                Modern(wire, self.group, TOPIC, f"{self.group}-{self.index}".ljust(22, "x"))
                if self.is_modern
                else Classic(wire, self.group, session_timeout_ms=SESSION_TIMEOUT_MS)
            )
        self._identity.wire = wire
        return self._identity

    async def _join(self, member: Classic | Modern) -> int:
        if isinstance(member, Modern):
            return await member.beat()
        error = await member.join()
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            error = await member.join()
        if error == ErrorCode.NONE:
            error, _ = await member.sync(dict.fromkeys(member.members, b"part"))
        return error

    async def _commit(self, member: Classic | Modern) -> int:
        self._next += 1
        offset = self._next
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                error = await commit(member, TOPIC, offset, self.index)
        except (OSError, EOFError, TimeoutError):
            self.events.append(Unknown(offset))
            raise
        if error == ErrorCode.NONE:
            self.events.append(Acknowledged(offset))
            self.acknowledged += 1
            self.on_ack()
        else:
            self.events.append(Refused(offset) if error in REFUSALS else Unknown(offset))
        return error

    async def _read(self, wire: Wire) -> bool:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            error, offset = await committed(wire, self.group, TOPIC, self.index)
        if error == ErrorCode.NONE:
            self.events.append(Read(offset))
        return error == ErrorCode.NONE

    async def read_in_the_end(self) -> None:
        """Retries errors: slots may still be on their way back to the preferred coordinator."""
        wire = await Wire.open(self.bootstrap)
        try:
            async with asyncio.timeout(STUCK_S):
                while not await self._read(wire):
                    await _turn(asyncio.Event())
        finally:
            wire.close()


async def _turn(stop: asyncio.Event) -> None:
    """Waits for the next round, or ends at once."""
    try:
        async with asyncio.timeout(TURN_S):
            await stop.wait()
    except TimeoutError:
        return


@asynccontextmanager
async def living(members: list[Member]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.run(stop), name=member.name)
        try:
            yield
        finally:
            stop.set()


async def all_commit(members: list[Member], what: str, timeout_s: float) -> None:
    before = [member.acknowledged for member in members]

    def behind() -> list[Member]:
        return [member for member, count in zip(members, before, strict=True) if member.acknowledged <= count]

    try:
        await asyncio.to_thread(until, what, lambda: not behind(), timeout_s)
    except Exception as trouble:
        stuck = [f"{member.name}: {member.errors[-5:]}" for member in behind()]
        raise AssertionError(f"{what}: stuck are {stuck}") from trouble


@contextmanager
def system_of(folder: Path, *node_ids: int, env: Mapping[str, str] | None = None) -> Iterator[System]:
    """The system with these coordinators; it runs in the block."""
    etcd = EtcdProcess(find_etcd(folder / "tools", print), folder / "etcd", log_path=folder / "etcd.log")
    asyncio.run(etcd.start())
    system = System(folder, etcd, env or {})
    try:
        system.start(*node_ids)
        yield system
    finally:
        system.kill()


def committing_members(bootstrap: str, groups: int) -> list[Member]:
    """Members of groups of both protocols. Creates their topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, MEMBERS, 1)])[TOPIC].result(60)
    return [
        Member(bootstrap, f"group{n}", index, is_modern=n % 2 == 1)
        for n in range(groups)
        for index in range(MEMBERS)
    ]


async def went_back(members: list[Member]) -> list[str]:
    """The broken laws, after all members have ended and have read their offsets again."""
    for member in members:
        await member.read_in_the_end()
    return [law for member in members for law in violations(member.name, member.events)]
