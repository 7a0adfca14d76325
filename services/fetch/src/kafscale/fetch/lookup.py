"""Finds the log of each partition that a request names, or the error for it.

Some errors make a client act: it resets its offset, refreshes its metadata or gives up a topic. Such an error is
answered only after a read of etcd that began after the request arrived: of the log's keys, or of the topics' records.
If etcd cannot be read, the answer is a retriable error that says nothing about the offset. The same holds for a log of
which only half of a checkpoint is known (`LogState.torn`): no answer is made from it. A topic that the client may not
use is not looked up at all: the answer is the same whether it exists or not.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafscale.fetch.errors import MetadataUnavailable, RequestKind, code_for
from kafscale.fetch.heads import Heads
from kafscale.log.state import LogState
from kafscale.storage.keys import PartitionKey, TopicId
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicsView
from kafscale.wire.errors import ErrorCode

TOPICS_RECENT_S: Final = 0.2
"""Clients repeat requests for unknown names. A read of all topics that ended less than this ago serves them."""
LOOKS_MAX: Final = 5
"""One read returns both halves of a checkpoint. Another is needed only if etcd lost events, or if the table is full."""
NO_EPOCH: Final = -1
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DeniedOf = Callable[[Iterable[str]], frozenset[str]]
"""From names of topics to those that the client may not use."""
DENIES_ALL: Final[DeniedOf] = frozenset
NO_RECORDS: Final = MetadataUnavailable(reason="the topics' records cannot be read")


class PartitionRequest:
    """One partition that a request names. `state` and `error` are the lookup's answer."""

    __slots__ = ("error", "fresh", "key", "leader_epoch", "offset", "partition", "state", "topic", "wanted")

    def __init__(
        self,
        wanted: str | bytes,
        partition: int,
        *,
        leader_epoch: int = NO_EPOCH,
        offset: int | None = None,
        fresh: bool = False,
    ) -> None:
        self.wanted = wanted  # a name, or a topic id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset  # must lie in the log, when given
        self.fresh = fresh  # needs the newest state, not only a true one
        self.topic: Topic | None = None
        self.key: PartitionKey | None = None
        self.state: LogState | None = None
        self.error = ErrorCode.NONE

    @property
    def readable(self) -> bool:
        return self.error is ErrorCode.NONE

    @property
    def name(self) -> str | None:
        """The topic's name; None for an id that no topic is known to have."""
        if isinstance(self.wanted, str):
            return self.wanted
        return None if self.topic is None else self.topic.name

    def deny(self) -> None:
        """The client may not use the topic, and learns nothing else about it."""
        self.topic = self.key = self.state = None
        self.error = DENIED


def verdict(state: LogState, leader_epoch: int, offset: int | None, topic: Topic) -> ErrorCode:
    """The error for a client that sends this leader epoch and this offset; NONE if both are right.

    The epoch of an earlier owner is right: an owner never changes what is below the high watermark, and any instance
    reads it. An epoch below the topic's first was of a deleted topic with the same name, which was another log
    (docs/adr/0007-fetch-consistency.md). Where there was none, epoch 0 is older than the first owner's, and nobody's.
    """
    if topic.epoch_floor and 0 <= leader_epoch < topic.first_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader_epoch > state.leader_epoch(topic):
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if offset is not None and not state.log_start <= offset <= state.next:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


class Lookup:
    def __init__(self, topics: TopicsView, heads: Heads) -> None:
        self._topics = topics
        self._heads = heads

    async def open(
        self,
        spots: Sequence[PartitionRequest],
        asked: RequestKind,
        *,
        denied_of: DeniedOf | None = None,
        log_start_revision: int = 0,
    ) -> None:
        """Fill in every spot's topic and state, or its error; no log start is older than the revision."""
        unnamed = [spot for spot in spots if not self._name(spot)]
        if denied_of is not None:
            deny(spots, denied_of)
            unnamed = [spot for spot in unnamed if spot.readable]
        if unnamed:
            known = await self._topics.confirmed(recent_s=TOPICS_RECENT_S)
            for spot in unnamed:
                if not self._name(spot):
                    spot.error = self._damaged(spot) or (
                        self._unknown(spot) if known else code_for(NO_RECORDS, asked)
                    )
            if denied_of is not None:
                deny([spot for spot in unnamed if spot.readable], denied_of)
        for spot in spots if log_start_revision else ():
            if spot.key and self._heads.revision(spot.key) < log_start_revision:
                spot.fresh = True
        await self.review(spots, asked)
        for spot in spots:
            spot.fresh = False

    async def review(self, spots: Sequence[PartitionRequest], asked: RequestKind) -> None:
        """Bring the spots up to what is known now. Reads etcd for those that would get an error."""
        doubtful = [spot for spot in spots if spot.key and (not self._judge(spot, asked) or spot.fresh)]
        for _ in range(LOOKS_MAX):
            if not doubtful:
                return
            try:
                await self._heads.refresh({spot.key: None for spot in doubtful if spot.key})
            except MetadataUnavailable as failure:
                _fail(doubtful, failure, asked)
                return
            torn = [spot for spot in doubtful if not self._judge(spot, asked) and _needs_look(spot)]
            await self._explain([spot for spot in doubtful if _is_headless(spot)], asked)
            doubtful = torn
        _fail(doubtful, MetadataUnavailable(reason=f"half of a checkpoint in {LOOKS_MAX} looks"), asked)

    def _judge(self, spot: PartitionRequest, asked: RequestKind) -> bool:
        """True when the spot can be served from what is known."""
        assert spot.key is not None, spot.wanted
        assert spot.topic is not None, spot.wanted
        if not self._exists(spot):
            spot.error = self._unknown(spot)
            return False
        try:
            state = self._heads.known(spot.key)
        except UnreadableValue as failure:
            spot.error = code_for(failure, asked)
            return False
        if state is None:
            return False
        spot.state = state
        spot.error = verdict(state, spot.leader_epoch, spot.offset, spot.topic)
        return spot.readable and not state.torn

    async def _explain(self, headless: Sequence[PartitionRequest], asked: RequestKind) -> None:
        """The partition was never claimed, or its head was deleted with its topic. The topics' records say which."""
        if not headless:
            return
        known = await self._topics.confirmed()
        for spot in headless:
            if not self._exists(spot):
                spot.error = self._unknown(spot)
            elif not known:
                _fail([spot], NO_RECORDS, asked)

    def _exists(self, spot: PartitionRequest) -> bool:
        """Whether the spot's topic is still the one that it was found to be."""
        topic = self._topics.find(spot.wanted, spot.partition)
        return topic is not None and spot.key is not None and topic.topic_id == spot.key[0]

    def _name(self, spot: PartitionRequest) -> bool:
        """Find the topic; False when it or the partition does not exist as far as this view knows. The topic of a
        partition that does not exist is known: its name decides what the client may learn."""
        topic = spot.topic = self._topics.find(spot.wanted)
        if topic is None or not 0 <= spot.partition < topic.partitions:
            return False
        spot.key = (TopicId(topic.topic_id), spot.partition)
        return True

    def _unknown(self, spot: PartitionRequest) -> ErrorCode:
        """As Kafka: of a topic that is there, the partition is unknown, however the topic is named."""
        if isinstance(spot.wanted, str) or self._topics.find(spot.wanted) is not None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.UNKNOWN_TOPIC_ID

    def _damaged(self, spot: PartitionRequest) -> ErrorCode | None:
        """A topic whose record cannot be read still exists: no client may give it up."""
        if isinstance(spot.wanted, str) and self._topics.is_damaged(spot.wanted):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None


def deny(spots: Sequence[PartitionRequest], denied_of: DeniedOf = DENIES_ALL) -> None:
    """The spots of topics that the client may not use. A spot without a name stays as it is, except by DENIES_ALL."""
    if denied_of is DENIES_ALL:
        for spot in spots:
            spot.deny()
        return
    denied = denied_of(name for spot in spots if (name := spot.name) is not None)
    for spot in spots if denied else ():
        if spot.name in denied:
            spot.deny()


def _needs_look(spot: PartitionRequest) -> bool:
    """Half of a checkpoint is known; or nothing is, as the partition was dropped while it was read."""
    return spot.readable if spot.state is None else spot.state.torn


def _is_headless(spot: PartitionRequest) -> bool:
    """Its offset is out of range because there is no log at all."""
    return spot.error is ErrorCode.OFFSET_OUT_OF_RANGE and spot.state is not None and spot.state.head is None


def _fail(spots: Sequence[PartitionRequest], failure: MetadataUnavailable, asked: RequestKind) -> None:
    for spot in spots:
        spot.error = code_for(failure, asked)
