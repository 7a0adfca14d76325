"""The partitions this instance writes: how they come and how they are lost.

A partition is claimed by its first request, when its owner record is seen to be released to this node, or by
the background scan; every claim reads the head first and is one compare-and-swap. The laws: one `Partition` object
per key at a time, dropped for good when its writer stops; an unclaimed partition is refused, not
queued; nothing here decides whether a claim is right, that is `storage.coordination`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog
from kafscale.log.claims import Won, build_claim, build_release, read_claim
from kafscale.log.heads import check_meta, decode_head, decode_meta
from kafscale.produce.known_heads import KnownHeads
from kafscale.produce.log.model import Limits, PartitionId, StepDownReason
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.partition import Partition, Phase, Tools
from kafscale.produce.penalties import PENALIZED
from kafscale.produce.recovery import LogDamaged, Recovery
from kafscale.runtime.clock import Clock
from kafscale.runtime.committer import Settled
from kafscale.storage.backoff import Backoff
from kafscale.storage.coordination import Fleet, OwnerRecord, next_look, node_of
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range
from kafscale.storage.failures import without_frames
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace, PartitionKey, TopicId
from kafscale.storage.membership.members import LiveView
from kafscale.storage.objects import StoreError
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

CLAIM_TRIES_MAX = 8
LOAD_GIVE_UP_MS = 60_000
LOOKS_MAX = 8
"""At a meta that moves on while the log is loaded from what it named."""
RETRY_FIRST_MS = 50
RETRY_MAX_MS = 1_000
LOAD_RETRY_MAX_MS = 5_000
HOLD_MAX_MS = 2_500
"""Longest a request waits here for a claim; the front door holds its lane a little longer."""
SWEEP_EVERY_S = 0.1

VIEW_WAIT_S = 1.0
SCAN_EVERY_S = 5.0
SCAN_SETTLE_S = 0.05
SCAN_PAGE = 500
BACKGROUND_CLAIMS_MAX = 64


class NotWon(Enum):
    REFUSED = auto()  # it is another's, or the topic is gone
    AGAIN = auto()  # something moved: look again


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What an instance sees of the cluster, and the ways to change it."""

    etcd: EtcdClient
    keyspace: Keyspace
    topics: TopicsView
    live: LiveView
    owners: OwnersView
    history: History
    me: str


class Ownership:
    """See the module's law."""

    def __init__(
        self,
        world: World,
        *,
        recovery: Recovery,
        limits: Callable[[Topic], Limits],
        fresh_id: Callable[[], bytes],
        clock: Clock,
        metrics: ProduceMetrics,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.world = world
        self.partitions: dict[PartitionKey, Partition] = {}
        self.ready = False  # this instance takes partitions
        self.draining = False
        self.tools: Tools
        self.scan_wanted = asyncio.Event()
        self.balance_wanted = asyncio.Event()
        self._recovery = recovery
        self._limits = limits
        self._fresh_id = fresh_id
        self._clock = clock
        self._metrics = metrics
        self._tasks = tasks
        self._acquiring: dict[Partition, None] = {}  # in order of arrival
        self._acquires = asyncio.Event()
        self._known_heads = KnownHeads(world.history)
        self._fleet: Fleet | None = None
        self._my_node = str(node_of(world.me))
        world.topics.subscribe(self._topic_changed)
        world.live.subscribe(self._fleet_changed)
        world.owners.subscribe(self._owner_changed)

    # --- the view --------------------------------------------------------------------------

    def fleet(self) -> Fleet:
        if self._fleet is None:
            self._fleet = Fleet.seen(
                self.world.live, self.world.me, claiming=self.ready, leaving=self.draining
            )
        return self._fleet

    def set_stance(self, *, ready: bool, draining: bool) -> None:
        self.ready, self.draining = ready, draining
        self._fleet_changed()

    def record(self, topic_id: TopicId, partition: int) -> OwnerRecord | None:
        return self.world.owners.of((topic_id, partition))

    def owned_count(self) -> int:
        return len(self.partitions) - len(self._acquiring)

    def _fleet_changed(self, *_: object) -> None:
        self._fleet = None
        self.scan_wanted.set()
        self.balance_wanted.set()

    # --- coming ----------------------------------------------------------------------------

    def find_or_claim(self, topic: Topic, partition: int) -> Partition | ErrorCode:
        """The partition if it is ours or should be, else why not."""
        key = (topic.topic_id, partition)
        found = self.partitions.get(key)
        if found is not None:
            return found
        penalties, now_ms = self.tools.penalties, self._clock.now_ms()
        penalty = penalties.error(key, now_ms)
        if penalty is not None:
            return penalty
        record = self.record(topic.topic_id, partition)
        if self.fleet().claimable(topic.topic_id, partition, record) is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        penalties.claims(now_ms)
        return self.acquire(topic, partition)

    def _owner_changed(self, key: bytes, record: OwnerRecord | None) -> None:
        """Claim what its last owner has released to this node. What was released before this instance was ready is
        claimed by the scan."""
        if record is None or record.owner or record.handoff_to != self._my_node or not self.ready:
            return
        place = self.world.keyspace.parse_owner(key)
        topic = self.world.topics.by_id(place[0])
        if topic is not None and place not in self.partitions:
            self.acquire(topic, place[1])

    def acquire(self, topic: Topic, partition: int, done: Callable[[], None] | None = None) -> Partition:
        """Start a claim; whether it is due is decided on the head itself. `done` when it is settled."""
        key = (topic.topic_id, partition)
        assert key not in self.partitions, key
        id_ = PartitionId(topic=topic.name, topic_id=topic.topic_id, partition=partition)
        self.partitions[key] = acquired = Partition(id_, self.tools)
        self._acquiring[acquired] = None
        self._acquires.set()
        self._tasks.create_task(self._acquire(acquired, done), name=f"acquire-{acquired}")
        return acquired

    async def _acquire(self, partition: Partition, done: Callable[[], None] | None) -> None:
        started_ms = self._clock.now_ms()
        try:
            won = await self._claim(partition)
            if won is None:
                self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif self.draining:
                await self._return(partition, won)
            else:
                await self._load(partition, won)
                self._metrics.recovery_seconds.observe((self._clock.now_ms() - started_ms) / 1000)
        except UnreadableValue as error:
            why = str(without_frames(error))
            log.error("committed data is damaged", partition=repr(partition), why=why)
            self._penalize(partition, StepDownReason.DAMAGED)
            self._give_up(partition, StepDownReason.DAMAGED.error)
        finally:
            self._acquiring.pop(partition, None)
            if done is not None:
                done()

    async def _claim(self, partition: Partition) -> Won | None:
        backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_MAX_MS)
        for _ in range(CLAIM_TRIES_MAX):
            try:
                outcome = await self._claim_once(partition)
            except EtcdError as error:
                log.info("head not read for claim", partition=repr(partition), error=str(error))
                outcome = NotWon.AGAIN
            if isinstance(outcome, Won):
                return outcome
            if outcome is NotWon.REFUSED:
                return None
            await backoff.sleep()
        return None

    async def _claim_once(self, partition: Partition) -> Won | NotWon:
        id_, world = partition.id, self.world
        topic = world.topics.by_id(id_.topic_id)
        if topic is None or topic.state is not TopicState.ACTIVE or partition.phase is Phase.GONE:
            return NotWon.REFUSED
        found = await world.etcd.get(world.keyspace.head(id_.topic_id, id_.partition))
        head, revision = (decode_head(found.value), found.mod_revision) if found else (None, 0)
        record = OwnerRecord(epoch=head.epoch, owner=head.owner, handoff_to=head.handoff_to) if head else None
        why = self.fleet().claimable(id_.topic_id, id_.partition, record)
        if why is None or not self._known_heads.agree(partition.key, head):
            return NotWon.REFUSED
        claim = build_claim(
            world.keyspace, topic, id_.partition, head=head, revision=revision, me=world.me, why=why
        )
        settled = await self.tools.committer.ask(claim.txn)
        if not isinstance(settled, Settled):
            self._penalize(partition, StepDownReason.COMMIT_REJECTED)
            return NotWon.REFUSED
        outcome = read_claim(claim, settled.result, settled.revision)
        if isinstance(outcome, Won):
            self._metrics.claims.labels(why.name.lower()).inc()
            return outcome
        if outcome.head_lost:
            raise LogDamaged(
                repr(claim.txn.compare[0].key), "it is gone, and what was written with it is not"
            )
        self._metrics.claims_lost.inc()
        await world.topics.wait_revision(outcome.topic_revision, VIEW_WAIT_S)
        return NotWon.AGAIN

    async def _load(self, partition: Partition, won: Won) -> None:
        partition.phase = Phase.LOADING
        give_up_ms = self._clock.now_ms() + LOAD_GIVE_UP_MS
        backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=LOAD_RETRY_MAX_MS)
        while partition.phase is Phase.LOADING:
            try:
                producers = await self._recovered(partition.id, won)
            except (StoreError, EtcdError, TimeoutError) as error:
                why = repr(without_frames(error))
                log.warning("log not loaded yet", partition=repr(partition), error=why)
                if self._clock.now_ms() > give_up_ms:
                    return self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                await backoff.sleep()
                continue
            if producers is None:
                return self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return self._serve(partition, won, producers)
        return None

    async def _recovered(self, id_: PartitionId, won: Won) -> ProducerTable | None:
        """None: another instance has the head by now, and may have deleted what it named. Raises LogDamaged only
        for objects that the current head and meta name."""
        for left in reversed(range(LOOKS_MAX)):
            try:
                check_meta(won.head.tail, won.meta)
                return await self._recovery.producers(id_, won.head, won.meta)
            except LogDamaged as damaged:
                without_frames(damaged)
                now = await self._look_again(id_, won)
                if now is None:
                    return None
                if now == won or not left:
                    raise
                won = now
        raise AssertionError("the last look returns or raises")

    async def _look_again(self, id_: PartitionId, won: Won) -> Won | None:
        keys, place = self.world.keyspace, (id_.topic_id, id_.partition)
        heads, metas = await self.world.etcd.ranges([Range(keys.head(*place)), Range(keys.meta(*place))])
        if not heads.kvs or heads.kvs[0].mod_revision != won.revision:
            return None
        if not metas.kvs:
            return won
        return replace(won, meta=decode_meta(metas.kvs[0].value), meta_revision=metas.kvs[0].mod_revision)

    def _serve(self, partition: Partition, won: Won, producers: ProducerTable) -> None:
        topic = self.world.topics.by_id(partition.id.topic_id)
        if topic is None or partition.phase is Phase.GONE:
            return self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        writer = PartitionWriter(
            partition.id,
            won.head,
            won.revision,
            producers=producers,
            log_start=won.meta.log_start,
            limits=self._limits(topic),
            names=self.world.keyspace,
            ids=self._fresh_id,
            kept=self.tools.kept,
        )
        partition.serve(writer, producers)
        self.balance_wanted.set()
        return None

    async def _return(self, partition: Partition, won: Won) -> None:
        """Won while draining: give it back unopened."""
        self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        unowned = replace(won.head, owner="", handoff_to="")
        txn = build_release(
            self.world.keyspace,
            partition.id.topic_id,
            partition.id.partition,
            released=unowned,
            revision=won.revision,
        )
        await self.tools.committer.ask(txn)

    # --- going -----------------------------------------------------------------------------

    def _give_up(self, partition: Partition, error: ErrorCode) -> None:
        self._forget(partition)
        partition.give_up(error)

    def stepped_down(self, partition: Partition, reason: StepDownReason) -> None:
        if reason in PENALIZED:
            self._penalize(partition, reason)
        self._forget(partition)

    def _penalize(self, partition: Partition, reason: StepDownReason) -> None:
        self._metrics.damage_met.inc(reason is StepDownReason.DAMAGED)
        self.tools.penalties.add(partition.key, reason, self._clock.now_ms())

    def _forget(self, partition: Partition) -> None:
        self._known_heads.note(partition.key, partition.writer.head if partition.writer else None)
        if self.partitions.get(partition.key) is partition:
            del self.partitions[partition.key]

    def _topic_changed(self, name: str, _: Topic | None) -> None:
        for partition in [p for p in self.partitions.values() if p.id.topic == name]:
            self.configure(partition)

    def configure(self, partition: Partition) -> None:
        """What the limits depend on has changed."""
        topic = self.world.topics.by_id(partition.id.topic_id)
        if topic is None or topic.state is not TopicState.ACTIVE:
            self._lose_topic(partition)
        elif partition.writer is not None:
            partition.writer.configure(self._limits(topic), self.tools.now())
            self.tools.pump.touch(partition)

    def _lose_topic(self, partition: Partition) -> None:
        if partition.writer is None:
            self._give_up(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            partition.writer.step_down(StepDownReason.TOPIC_DELETED, self.tools.now())
            self.tools.pump.touch(partition)

    # --- in the background -----------------------------------------------------------------

    async def sweep(self) -> None:
        """Refuse what was held too long, whole queues at a time: none may pass another."""
        while await self._acquires.wait():
            await asyncio.sleep(SWEEP_EVERY_S)
            if not self._acquiring:
                self._acquires.clear()
            self._refuse_overdue()  # by itself, as a loop that sleeps would keep the last partition in memory

    def _refuse_overdue(self) -> None:
        oldest_ms = self._clock.now_ms() - HOLD_MAX_MS
        for partition in list(self._acquiring):
            if 0 < partition.held_since_ms < oldest_ms:
                partition.refuse_held(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def scan(self) -> None:
        """Claim what has an absent owner and should be ours, without waiting for a request."""
        slots = asyncio.Semaphore(BACKGROUND_CLAIMS_MAX)
        while True:
            await self._scan_once(slots)
            await next_look(self.scan_wanted, every_s=SCAN_EVERY_S, settle_s=SCAN_SETTLE_S)

    async def _scan_once(self, slots: asyncio.Semaphore) -> None:
        looked_at = 0
        for topic in self.world.topics.all():
            for number in range(topic.partitions):
                looked_at += 1
                if looked_at % SCAN_PAGE == 0:
                    await asyncio.sleep(0)
                if self._unattended(topic, number):
                    await slots.acquire()
                    if self._unattended(topic, number):
                        self.acquire(topic, number, done=slots.release)
                    else:
                        slots.release()

    def _unattended(self, topic: Topic, number: int) -> bool:
        key, record = (topic.topic_id, number), self.record(topic.topic_id, number)
        if record is None or topic.state is not TopicState.ACTIVE or self.world.history.stopped:
            return False  # without a record it was never claimed: its first request will
        if key in self.partitions or self.tools.penalties.error(key, self._clock.now_ms(), background=True):
            return False
        return self.fleet().claimable(topic.topic_id, number, record) is not None
