"""Clients with names at a judged group: what the directed tests and the scripts are written with."""

from typing import TypeVar

from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Abandon,
    Commit,
    Delete,
    Generation,
    Group,
    Heartbeat,
    InstanceId,
    Join,
    JoinReply,
    Leave,
    Leaver,
    LeaveReply,
    MemberId,
    Phase,
    Protocol,
    Reply,
    Rules,
    StatusReply,
    Sync,
    SyncReply,
    Token,
)
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_laws import Judge, made_for, owner_of

RANGE: tuple[Protocol, ...] = (("range", b"\0\0" + b"\0\0\0\1" + b"\0\1t"),)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
Answers = list[Reply]
T = TypeVar("T", StatusReply, LeaveReply)


class Desk:
    """`name` is a client; it keeps what it was told, as clients do."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.judge = Judge(rules)
        self.ids: dict[str, MemberId] = {}
        self.generations: dict[str, Generation] = {}
        self.instances: dict[str, InstanceId] = {}
        self.names: dict[Token, str] = {}
        self.answers: dict[str, Answers] = {}

    @property
    def group(self) -> Group:
        return self.judge.group

    @property
    def phase(self) -> Phase:
        return self.judge.group.phase

    def token(self, name: str) -> Token:
        token = self.judge.token()
        self.names[token] = name
        return token

    def take(self, replies: tuple[Reply, ...] | list[Reply]) -> list[tuple[str, Reply]]:
        """The clients hear their answers."""
        for reply in replies:
            name = self.names[reply.token]
            self.answers.setdefault(name, []).append(reply)
            if isinstance(reply, JoinReply) and reply.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.ids[name] = reply.member_id
                self.generations[name] = reply.generation
        return [(self.names[reply.token], reply) for reply in replies]

    def error(self, name: str) -> ErrorCode:
        return self.answers[name][-1].error

    def joined(self, name: str) -> JoinReply:
        return next(each for each in reversed(self.answers[name]) if isinstance(each, JoinReply))

    def synced(self, name: str) -> SyncReply:
        return next(each for each in reversed(self.answers[name]) if isinstance(each, SyncReply))

    def waits(self, name: str) -> bool:
        return any(self.names[token] == name for token in self.judge.open)

    # --- requests ------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        *,
        instance: str | None = None,
        offer: tuple[Protocol, ...] = RANGE,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
        anew: bool = False,
        v4: bool = False,
        v9: bool = False,
    ) -> ErrorCode | None:
        """The error, if it is answered at once. `anew`: as a process that has just started."""
        if instance is not None:
            self.instances[name] = InstanceId(instance)
        if anew:
            self.ids.pop(name, None)
        token = self.token(name)
        self.take(
            self.judge.do(
                Join(
                    token=token,
                    member_id=self.ids.get(name, NO_MEMBER_ID),
                    fresh_id=self.judge.fresh_id(name),
                    instance_id=self.instances.get(name),
                    client_id=f"client-{name}",
                    client_host="/127.0.0.1",
                    protocol_type=protocol_type,
                    protocols=offer,
                    session_timeout_ms=session_ms,
                    rebalance_timeout_ms=rebalance_ms,
                    needs_known_id=v4,
                    may_skip_assignment=v9,
                )
            )
        )
        return None if token in self.judge.open else self.error(name)

    def sync(
        self,
        name: str,
        *,
        generation: int | None = None,
        given: dict[str, bytes] | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> ErrorCode | None:
        """The leader gives everyone something, unless told what to give to whom (by name or id)."""
        token = self.token(name)
        number = self.generations.get(name, -1) if generation is None else generation
        if given is None:
            members = self.joined(name).members if name in self.answers else ()
            assignments = [
                (m.member_id, made_for(number, owner_of(m.member_id, m.instance_id))) for m in members
            ]
        else:
            assignments = [(self.ids.get(who, MemberId(who)), what) for who, what in given.items()]
        self.take(
            self.judge.do(
                Sync(
                    token=token,
                    generation=Generation(number),
                    member_id=self.ids.get(name, MemberId("nobody")),
                    instance_id=self.instances.get(name),
                    protocol_type=protocol_type,
                    protocol_name=protocol_name,
                    assignments=tuple(assignments),
                )
            )
        )
        return None if token in self.judge.open else self.error(name)

    def heartbeat(self, name: str, *, generation: int | None = None) -> ErrorCode:
        number = self.generations.get(name, -1) if generation is None else generation
        event = Heartbeat(
            token=self.token(name),
            generation=Generation(number),
            member_id=self.ids.get(name, MemberId("nobody")),
            instance_id=self.instances.get(name),
        )
        return self._answered(event, StatusReply).error

    def commit(self, name: str, *, generation: int | None = None, **flags: bool) -> ErrorCode:
        number = self.generations.get(name, -1) if generation is None else generation
        event = Commit(
            token=self.token(name),
            generation=Generation(number),
            member_id=self.ids.get(name, NO_MEMBER_ID),
            instance_id=self.instances.get(name),
            names_missing_groups=flags.get("names_missing_groups", False),
            transactional=flags.get("transactional", False),
        )
        return self._answered(event, StatusReply).error

    def leave(self, *names: str) -> list[ErrorCode]:
        """Members by their names' ids, or by instance id, written `=instance`."""
        leavers = tuple(
            Leaver(instance_id=InstanceId(name[1:]))
            if name.startswith("=")
            else Leaver(member_id=self.ids.get(name, MemberId(name)), instance_id=self.instances.get(name))
            for name in names
        )
        event = Leave(token=self.token(names[0]), leavers=leavers)
        reply = self._answered(event, LeaveReply)
        assert [(r.member_id, r.instance_id) for r in reply.leavers] == [
            (leaver.member_id, leaver.instance_id) for leaver in leavers
        ]
        return [each.error for each in reply.leavers]

    def delete(self) -> ErrorCode:
        return self._answered(Delete(token=self.token("admin")), StatusReply).error

    def vanish(self, name: str) -> None:
        for token in [token for token in self.judge.open if self.names[token] == name]:
            self.take(self.judge.do(Abandon(token=token)))

    def _answered(self, event: Heartbeat | Commit | Leave | Delete, kind: type[T]) -> T:
        replies = self.judge.do(event)
        self.take(replies)
        (own,) = [reply for reply in replies if reply.token == event.token]
        assert isinstance(own, kind)
        return own

    # --- time, and all at once -----------------------------------------------------------------

    def wait(self, elapsed_ms: int, *alive: str) -> None:
        """Time passes; `alive` send heartbeats every third of a session."""
        until_ms = self.judge.now_ms + elapsed_ms
        while self.judge.now_ms < until_ms:
            self.take(self.judge.pass_time(min(SESSION_MS // 3, until_ms - self.judge.now_ms)))
            for name in alive:
                if not self.waits(name):
                    self.heartbeat(name)

    def crash(self) -> None:
        self.judge.crash()

    def stable(self, *names: str, **offers: tuple[Protocol, ...]) -> None:
        """A Stable group of these; the first one leads. `s-…` are static."""
        for name in names:
            instance = name if name.startswith("s") else None
            self.join(name, instance=instance, offer=offers.get(name, RANGE))
        self.wait(6_000)
        for name in names[::-1]:
            self.sync(name)
        assert self.phase is Phase.STABLE
        assert self.group.leader == self.ids[names[0]]
