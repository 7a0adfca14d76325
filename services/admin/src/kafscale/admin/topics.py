"""Topic changes against etcd: read, plan (plan.py), compare-and-swap, read again when another was first.

An unknown outcome stays unknown: EtcdUnknown goes up and becomes REQUEST_TIMED_OUT, never a failure.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from kafscale.admin import plan
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.plan import NewTopic, Refused
from kafscale.admin.topic_limits import TopicLimits
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.heads import decode_epoch_floor
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import Topic, TopicState, TopicsView, decode_topic, encode_topic
from kafscale.wire.errors import ErrorCode

CAS_TRIES_MAX = 16
NAME_TAKEN = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION)

TOO_FULL = (
    f"etcd is over {Use.NEW.value:.0%} full, and the rest is kept for the topics that exist: delete topics or groups, "
    "or give etcd a larger quota (docs/operations.md, KafscaleEtcdFilling)."
)

Change = Callable[[Topic], Topic | Refused]


class TooContended(Exception):
    """Others changed the same record each time that we tried."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was changed by others {CAS_TRIES_MAX} times while we tried to change it")


class TopicStore:
    """Creates, changes and marks topics. Every method raises EtcdError when etcd cannot be asked, and UnreadableValue
    where a record of the topic is damaged: nothing is written over it."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        view: TopicsView,
        limits: TopicLimits,
        partitions_default: int,
        space: EtcdSpace,
    ) -> None:
        self._etcd = etcd
        self._keys = keys
        self._view = view
        self._limits = limits
        self._partitions_default = partitions_default
        self._space = space

    async def read(self, name: str) -> Topic | None:
        """The topic as etcd has it now."""
        found = await self._etcd.range(self._keys.topic(name))
        if not found.kvs:
            return None
        return decode_topic(name, found.kvs[0].value, found.kvs[0].mod_revision)

    async def check(self, asked: NewTopic) -> Refused | int:
        """What `create` would say, as far as can be known without writing: the partition count, or why not.

        The view may still hold a name that another admin has freed: none is taken until etcd said so.
        """
        verdict = self._check(asked)
        if isinstance(verdict, Refused) and verdict.error in NAME_TAKEN:
            clash = plan.colliding_name(asked.name, self._names())
            if clash is not None:
                await self._view.view.refresh_keys([self._keys.topic(clash)])
                return self._check(asked)
        return verdict

    def _check(self, asked: NewTopic) -> Refused | int:
        verdict = plan.check_new_topic(asked, self._names(), self._partitions_default)
        if isinstance(verdict, Refused):
            return verdict
        return self._limits.refusal(1, verdict) or verdict

    def _names(self) -> Iterator[str]:
        """Also those of damaged topics: their names are not free."""
        yield from (topic.name for topic in self._view.all())
        yield from self._view.damaged()

    async def create(self, asked: NewTopic, now_ms: int) -> Topic | Refused:
        """The new topic, whose name was free, or why there is none."""
        count = await self.check(asked)
        if isinstance(count, Refused):
            return count
        if not self._space.admits(Use.NEW, len(encode_topic(_new(asked, count, 0, now_ms)))):
            return Refused(ErrorCode.POLICY_VIOLATION, TOO_FULL)
        with self._limits.making(1, count) as refused:
            return refused or await self._create(asked, count, now_ms)

    async def _create(self, asked: NewTopic, count: int, now_ms: int) -> Topic | Refused:
        for _ in range(CAS_TRIES_MAX):
            floor = await self._etcd.range(self._keys.epoch_floor(asked.name))
            topic = _new(asked, count, decode_epoch_floor(floor.kvs[0].value) if floor.kvs else 0, now_ms)
            result = await self._etcd.txn(
                plan.create(self._keys, topic, floor.kvs[0].mod_revision if floor.kvs else 0)
            )
            if result.succeeded:
                await self._view.wait_revision(result.revision, timeout_s=3.0)
                return topic
            if await self.read(asked.name) is not None:
                return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
        raise TooContended(f"topic '{asked.name}'")

    async def change(self, name: str, change: Change) -> Topic | Refused:
        """Applies `change` to the newest record of an active topic."""
        for _ in range(CAS_TRIES_MAX):
            old = await self.read(name)
            if old is None or old.state is not TopicState.ACTIVE:
                return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
            new = change(old)
            if isinstance(new, Refused):
                return new
            with self._limits.making(0, new.partitions - old.partitions) as refused:
                if refused is not None:
                    return refused
                result = await self._etcd.txn(plan.replace_record(self._keys, old, new))
                if result.succeeded:
                    await self._view.wait_revision(result.revision, timeout_s=3.0)
                    return new
        raise TooContended(f"topic '{name}'")


def _new(asked: NewTopic, partitions: int, epoch_floor: int, now_ms: int) -> Topic:
    return Topic(
        name=asked.name,
        topic_id=TopicId(uuid.uuid4().bytes),
        partitions=partitions,
        configs=TOPIC_CONFIGS.kept(asked.configs or {}),
        state=TopicState.ACTIVE,
        epoch_floor=epoch_floor,
        created_ms=now_ms,
        config_version=0,
        mod_revision=0,
    )
