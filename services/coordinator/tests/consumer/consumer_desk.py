"""A group on a desk, for stories told one request at a time."""

from typing import Any

from kafscale.coordinator.consumer.machine import restore, state_of, step
from kafscale.coordinator.consumer.model import (
    Commit,
    Event,
    Fetch,
    Group,
    GroupState,
    Heartbeat,
    HeartbeatReply,
    Member,
    MemberId,
    Partitions,
    PersistedGroup,
    Rules,
    Tick,
    TopicInfo,
    Topics,
    TopicsChanged,
)
from kafscale.storage.keys import TopicId
from kafscale.wire.errors import ErrorCode

A, B, C = (TopicId(bytes([number] * 16)) for number in (1, 2, 3))
TOPICS: Topics = {"a": TopicInfo(A, 4), "b": TopicInfo(B, 2)}
SESSION_MS = 45_000


def parts(topic: TopicId, *numbers: int) -> Partitions:
    return {topic: frozenset(numbers)} if numbers else {}


class Desk:
    def __init__(self, topics: Topics = TOPICS, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.now_ms = 0
        self.group: Group = restore(PersistedGroup(group_id="g"), 0, topics, self.rules)

    @property
    def state(self) -> GroupState:
        return state_of(self.group.persisted)

    def member(self, member_id: str) -> Member:
        return self.group.persisted.members[MemberId(member_id)]

    def do(self, event: Event) -> list[Any]:
        done = step(self.group, event, self.now_ms, self.rules)
        self.group = done.group
        return list(done.replies)

    def heartbeat(self, member_id: str, epoch: int, **said: Any) -> HeartbeatReply:
        request = Heartbeat(token=7, fresh_id="drawn", member_id=member_id, member_epoch=epoch, **said)
        (reply,) = self.do(request)
        assert isinstance(reply, HeartbeatReply)
        assert reply.token == 7
        return reply

    def join(self, member_id: str, *names: str, **said: Any) -> HeartbeatReply:
        said = {"rebalance_timeout_ms": 60_000, "subscribed_names": names, "owned": {}} | said
        return self.heartbeat(member_id, 0, **said)

    def refused(self, member_id: str, epoch: int, **said: Any) -> ErrorCode:
        """The error of a heartbeat that must change nothing."""
        before = self.group
        reply = self.heartbeat(member_id, epoch, **said)
        assert self.group == before
        assert reply.error is not ErrorCode.NONE
        assert (reply.member_id, reply.member_epoch, reply.assignment) == (None, 0, None)
        return reply.error

    def commit(self, member_id: str, epoch: int, **said: Any) -> ErrorCode:
        (reply,) = self.do(Commit(token=7, member_id=member_id, member_epoch=epoch, **said))
        error: ErrorCode = reply.error
        return error

    def fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        (reply,) = self.do(Fetch(token=7, member_id=member_id, member_epoch=epoch))
        error: ErrorCode = reply.error
        return error

    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.do(Tick())

    def set_topics(self, topics: Topics) -> None:
        self.do(TopicsChanged(topics=topics))


def pair_sharing_a() -> Desk:
    """`one` has a-0, a-1 and `two` a-2, a-3, both STABLE at epoch 2."""
    desk = Desk()
    desk.join("one", "a")
    desk.join("two", "a")
    told = desk.heartbeat("one", 1).assignment
    assert told is not None
    desk.heartbeat("one", 1, owned=told)
    rest = desk.heartbeat("two", 2).assignment
    assert rest is not None
    desk.heartbeat("two", 2, owned=rest)
    assert desk.state is GroupState.STABLE
    return desk
