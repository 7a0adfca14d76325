"""Topic changes against etcd: read, plan (plan.py), compare-and-swap, and read again if another admin was first.

An unknown outcome stays unknown: EtcdUnknown goes up and becomes REQUEST_TIMED_OUT, never a failure. Nothing changes in
an etcd that went back: a topic that it does not know may exist, and a new one of its name would take its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from kafscale.admin import plan
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.errors import guarded
from kafscale.admin.plan import NewTopic, Refused
from kafscale.admin.topic_limits import TopicLimits
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.etcd.client import EtcdClient, Txn, TxnResult
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.system import random_uuid
from kafscale.storage.topics import (
    Topic,
    TopicState,
    TopicsView,
    decode_epoch_floor,
    decode_topic,
    encode_topic,
)
from kafscale.wire.errors import ErrorCode

CREATIONS_MAX = 32
"""Automatic creations in progress, of all requests together."""
RETRY_LATER = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_REPORTED = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Another admin was first, or the outcome is unknown: the client's next Metadata has the answer."""
NAME_TAKEN = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION)

TOO_FULL = (
    f"etcd is over {Use.NEW.value:.0%} full, and the rest is reserved for existing topics: delete topics or groups, "
    "or give etcd a larger quota (docs/operations.md, KafscaleEtcdFilling)."
)

Change = Callable[[Topic], Topic | Refused]


class TopicStore:
    """Creates, changes and marks topics. Every method raises EtcdError if etcd cannot be read, and UnreadableValue
    if a record of the topic is damaged, which is then not overwritten. `create` and `change` raise TooContended and
    WentBack, and StoreError or TimeoutError if etcd's history cannot be verified."""

    def __init__(
        self,
        etcd: EtcdClient,
        keys: Keyspace,
        view: TopicsView,
        limits: TopicLimits,
        partitions_default: int,
        space: EtcdSpace,
        history: History,
    ) -> None:
        self._etcd = etcd
        self._history = history
        self._keys = keys
        self._view = view
        self._limits = limits
        self._partitions_default = partitions_default
        self._space = space

    async def read(self, name: str) -> Topic | None:
        """The topic as etcd has it now."""
        found = await self._etcd.get(self._keys.topic(name))
        return None if found is None else decode_topic(name, found.value, found.mod_revision)

    async def check(self, asked: NewTopic) -> Refused | int:
        """The result of `create` without writing: the partition count, or why the topic is refused.

        The view may still have a name that another admin has freed, so a name counts as taken only after a read of
        etcd.
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
        """Includes damaged topics, whose names are not free."""
        yield from (topic.name for topic in self._view.all())
        yield from self._view.damaged()

    async def create(self, asked: NewTopic, now_ms: int) -> Topic | Refused:
        """Creates the topic. Returns it, or why it is refused."""
        count = await self.check(asked)
        if isinstance(count, Refused):
            return count
        if not self._space.admits(Use.NEW, len(encode_topic(draft(asked, count, 0, now_ms)))):
            return Refused(ErrorCode.POLICY_VIOLATION, TOO_FULL)
        with self._limits.making(1, count) as refused:
            if refused is not None:
                return refused
            return await swapped(f"topic '{asked.name}'", partial(self._try_create, asked, count, now_ms))

    async def _try_create(self, asked: NewTopic, count: int, now_ms: int) -> Topic | Refused | None:
        floor = await self._etcd.get(self._keys.epoch_floor(asked.name))
        topic = draft(asked, count, decode_epoch_floor(floor.value) if floor else 0, now_ms)
        result = await self._send(plan.create(self._keys, topic, floor.mod_revision if floor else 0))
        if result.succeeded:
            await self._view.wait_revision(result.revision, timeout_s=3.0)
            return topic
        if await self.read(asked.name) is not None:
            return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
        self._history.missed()
        return None

    async def _send(self, txn: Txn) -> TxnResult:
        fence = await self._history.fenced()
        return await self._etcd.txn(replace(txn, compare=(*txn.compare, fence)))

    async def change(self, name: str, change: Change) -> Topic | Refused:
        """Applies `change` to the newest record of an active topic."""
        return await swapped(f"topic '{name}'", partial(self._try_change, name, change))

    async def _try_change(self, name: str, change: Change) -> Topic | Refused | None:
        old = await self.read(name)
        if old is None or old.state is not TopicState.ACTIVE:
            return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        new = change(old)
        if isinstance(new, Refused):
            return new
        with self._limits.making(0, new.partitions - old.partitions) as refused:
            if refused is not None:
                return refused
            result = await self._send(plan.replace_record(self._keys, old, new))
            if not result.succeeded:
                self._history.missed()
                return None
            await self._view.wait_revision(result.revision, timeout_s=3.0)
            return new


def draft(asked: NewTopic, partitions: int, epoch_floor: int, now_ms: int) -> Topic:
    return Topic(
        name=asked.name,
        topic_id=TopicId(random_uuid().bytes),
        partitions=partitions,
        configs=TOPIC_CONFIGS.kept(asked.configs or {}),
        replication_factor=asked.asked_replication,
        state=TopicState.ACTIVE,
        epoch_floor=epoch_floor,
        created_ms=now_ms,
        config_version=0,
        mod_revision=0,
    )


class AutoCreation:
    """Creates the topics that Metadata names and does not find, a few at a time.

    Law: no request waits for a free place. A request creates only its first topics, and only as many as there are
    places. The client retries for the others, and for the created ones too (Kafka creates them after the answer as
    well). So a request that names thousands of topics costs as much as a small one.
    """

    def __init__(self, store: TopicStore, *, enabled: bool, per_request: int) -> None:
        self.enabled = enabled
        self._store = store
        self._per_request = per_request
        self._places = CREATIONS_MAX

    async def create(self, names: Sequence[str], now_ms: int) -> Mapping[str, ErrorCode]:
        """The error that Metadata returns for each of these legal names, which were unknown."""
        some = names[: min(self._per_request, self._places)]
        self._places -= len(some)
        try:
            made = await asyncio.gather(*(self._one(name, now_ms) for name in some))
        finally:
            self._places += len(some)
        return {**dict.fromkeys(names, RETRY_LATER), **dict(zip(some, made, strict=True))}

    async def _one(self, name: str, now_ms: int) -> ErrorCode:
        outcome = await guarded(self._store.create(NewTopic(name=name), now_ms))
        return RETRY_LATER if isinstance(outcome, Topic) or outcome.error in NOT_REPORTED else outcome.error
