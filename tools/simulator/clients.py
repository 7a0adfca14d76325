"""Clients of a simulated cluster. They speak Kafka's frames over TCP, and write down what they were answered.

An idempotent producer sends a batch until it knows the outcome, as Kafka's clients do. A plain producer sends each
batch once, so the outcome of a batch without an answer is unknown. Readers follow the partitions from the beginning to
the end, and now and then begin anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import Any, Final, TypeVar

from kafscale.wire.batches import split_batches
from kafscale.wire.compression import Codec
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch, records_in
from kafscale.wire.schema import create_topics, fetch, init_producer_id, list_offsets, produce

from e2e.checkers.history import Answer, History, Sent
from e2e.harness.raw import Wire
from tools.simulator.world import FRONT_DOOR, KAFKA_PORT, World

B = TypeVar("B")
P = TypeVar("P")
TOPIC: Final = "orders"
REQUEST_TIMEOUTS_S: Final = (1.0, 4.0, 30.0)
"""Each client has one of them. With a short one it repeats what is still on its way."""
BACK_MAX: Final = 100
"""Offsets by which a reader goes back. At the end all is read once more."""
PAUSES_MAX: Final = 20
"""Times the mean."""
BURST: Final = 8
"""Works of a client without a long pause between them."""
CONNECT_TIMEOUT_S: Final = 3.0
WAIT_MAX_S: Final = 5.0
"""Of a Fetch at the end of a log."""
PRODUCE_TIMEOUTS_MS: Final = (500, 5_000, 20_000)
CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD)
UNDER_WAY: Final = (1, 1, 2, 5)
"""Requests of a producer at one time. Kafka's clients have up to five (max.in.flight.requests.per.connection)."""
RETRY_S: Final = (0.05, 0.5)
PRODUCE_V, FETCH_V, LIST_V, CREATE_V, INIT_V = 9, 12, 7, 5, 4
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets."""
FETCH_BYTES: Final = 256 << 10
UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which a record may be in the log."""


Question = tuple[ModuleType, int, object]
"""API, version and request."""
NO_ANSWER: Final = (OSError, EOFError, TimeoutError)


class Unanswered(Exception):
    """The connection failed, or there was no answer in time."""


def _answer(asked: asyncio.Future[Any]) -> Any:
    """None: it failed, or is not there yet."""
    if not asked.done():
        return None
    return None if isinstance(asked.exception(), NO_ANSWER) else asked.result()


@dataclass(eq=False)
class Records:
    """What all clients have seen, and the laws that an answer has broken."""

    history: History = field(default_factory=History)
    values: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """partition, offset -> the value that the first reader saw there"""
    topic: str = TOPIC
    broken: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    read: int = 0
    last_answer_s: float = 0.0
    longest_pause_s: float = 0.0
    """The longest time in which no producer had an answer."""
    counts: Counter[str] = field(default_factory=Counter)
    """What other clients did, for the summary."""

    answered: dict[int, float] = field(default_factory=dict)
    """By partition: when a producer had its last acknowledgement."""
    fetched: dict[int, float] = field(default_factory=dict)
    """By partition: when a reader had its last answer."""
    starts: dict[int, int] = field(default_factory=dict)
    """By partition: below it an operator has deleted the records, or is about to."""

    def progressed(self, partition: int, now_s: float) -> None:
        self.answered[partition] = now_s
        self.longest_pause_s = max(self.longest_pause_s, now_s - self.last_answer_s)
        self.last_answer_s = now_s

    def seen(self, partition: int, offset: int, value: bytes) -> None:
        self.read += 1
        first = self.values.setdefault((partition, offset), value)
        if first != value:
            self.broken.append(f"divergent: {partition}/{offset} was {first!r}, and is {value!r}")


@dataclass(eq=False)
class Client:
    """One connection at a time, to a front door that is drawn anew after each failure."""

    world: World
    name: str
    doors: int
    chance: random.Random
    pace_s: float = 0.3
    """Mean time between two of its works."""
    _wire: Wire | None = None

    def __post_init__(self) -> None:
        self.timeout_s = self.chance.choice(REQUEST_TIMEOUTS_S)

    async def ask(
        self, api: ModuleType, version: int, message: object, timeout_s: float | None = None
    ) -> Any:
        """`timeout_s`: None is the client's own. Raises Unanswered."""
        (answer,) = await self.answers([(api, version, message)], timeout_s)
        if answer is None:
            raise Unanswered
        return answer

    async def answers(self, questions: Sequence[Question], timeout_s: float | None = None) -> list[Any]:
        """The requests are sent one behind the other on one connection, and no answer is waited for in between. None:
        there is no answer to that one."""
        try:
            wire = await self._connected()
        except NO_ANSWER:
            return [None] * len(questions)
        asked = [asyncio.ensure_future(wire.ask(*each)) for each in questions]
        try:
            await asyncio.wait(asked, timeout=self.timeout_s if timeout_s is None else timeout_s)
            found = [_answer(each) for each in asked]
        finally:
            for each in asked:
                each.cancel()
        if None in found:
            self.close()
        return found

    async def _connected(self) -> Wire:
        if self._wire is None:
            door = f"{FRONT_DOOR}-{self.chance.randint(1, self.doors)}:{KAFKA_PORT}"
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                self._wire = await Wire.open(door, self.name)
        return self._wire

    async def patiently(self, api: ModuleType, version: int, message: object) -> Any:
        """Until there is an answer."""
        while True:
            try:
                return await self.ask(api, version, message)
            except Unanswered:
                await self.rest()

    async def rest(self) -> None:
        """Before it tries again."""
        await asyncio.sleep(self.chance.uniform(*RETRY_S))

    async def pause(self) -> None:
        """Before its next work. It works in bursts, as what meets a fault is many requests or none."""
        between_bursts = self.chance.random() < 1 / BURST
        mean_s = self.pace_s * (BURST - 1 if between_bursts else 1 / BURST)
        pause_s = min(self.chance.expovariate(1 / mean_s), PAUSES_MAX * self.pace_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self.world.stopped.wait()

    def patience_ms(self) -> int:
        """How long it may ask a server to wait: it would not hear a later answer."""
        return int(min(self.timeout_s / 2, WAIT_MAX_S) * 1_000)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


async def create(
    client: Client,
    name: str,
    partitions: int,
    tries_max: int = 20,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """A topic that exists may be made by a request without an answer, or be on its way out. The last try counts."""
    topic = create_topics.CreateTopicsRequestTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[
            create_topics.CreateTopicsRequestTopicConfig(name=each, value=value)
            for each, value in configs.items()
        ],
    )
    request = create_topics.CreateTopicsRequest(topics=[topic])
    exists = 0
    while exists < tries_max:
        answer = await client.patiently(create_topics, CREATE_V, request)
        code = answer.topics[0].error_code
        if code == ErrorCode.NONE:
            return
        exists += code == ErrorCode.TOPIC_ALREADY_EXISTS
        await client.rest()


@dataclass(eq=False)
class Batch:
    partition: int
    sent: Sequence[Sent]
    data: bytes


@dataclass(eq=False)
class Producer:
    client: Client
    records: Records
    name: str
    partitions: int
    is_idempotent: bool
    rounds: int = 1 << 60
    """How often it sends."""
    only: int | None = None
    """The one partition to which it sends."""
    timeout_ms: int | None = None
    """Of each request. None: each time another."""
    _number: int = 0
    _who: tuple[int, int] = (-1, -1)
    _sequences: dict[int, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Until the world stops, or its rounds are over."""
        if self.is_idempotent:
            self.records.history.idempotent.add(self.name)
            await self._begin()
        while not self.client.world.stopping and self.rounds:
            self.rounds -= 1
            unknown = await self._send(self._drawn())
            while unknown and self.is_idempotent:
                await self.client.rest()
                unknown = await self._send(unknown)
            await self.client.pause()

    def _drawn(self) -> list[Batch]:
        chance = self.client.chance
        count = chance.randint(1, min(3, self.partitions))
        places = chance.sample(range(self.partitions), count) if self.only is None else [self.only]
        return [self._batch(each) for _ in range(chance.choice(UNDER_WAY)) for each in places]

    async def _begin(self) -> None:
        request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
        while True:
            answer = await self.client.patiently(init_producer_id, INIT_V, request)
            if answer.error_code == ErrorCode.NONE:
                self._who = answer.producer_id, answer.producer_epoch
                return
            await self.client.rest()

    def _batch(self, partition: int) -> Batch:
        count = self.client.chance.randint(1, 5)
        sent = [Sent(self.name, self._number + each, partition) for each in range(count)]
        self._number += count
        self.records.history.sent += sent
        sequence = self._sequences.get(partition, 0) if self.is_idempotent else -1
        self._sequences[partition] = sequence + count
        padding = b"." * self.client.chance.choice((0, 100, 4_000))
        records = [Record(timestamp=1_700_000_000_000, key=padding, value=each.value) for each in sent]
        producer_id, epoch = self._who
        data = build_batch(
            records,
            codec=self.client.chance.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        return Batch(partition, sent, data)

    async def _send(self, batches: list[Batch]) -> list[Batch]:
        """Those whose outcome is not known yet. Several batches of a partition are on their way at a time."""
        turns = in_turns(batches, lambda batch: batch.partition)
        answers = await self.client.answers([(produce, PRODUCE_V, self._request(each)) for each in turns])
        unknown: dict[int, list[Batch]] = {}
        ends: dict[int, int] = {}
        for turn, answer in zip(turns, answers, strict=True):
            topics = [] if answer is None else answer.responses
            found = {part.index: part for each in topics for part in each.partition_responses}
            for partition, batch in turn.items():
                part, is_next = found.get(partition), partition not in unknown
                if part is None or not self._answered(batch, part, is_next=is_next):
                    self.records.unknown += 1
                    unknown.setdefault(partition, []).append(batch)
                elif part.error_code == ErrorCode.NONE:
                    self._keeps_order(batch, part.base_offset, ends)
        return [batch for each in unknown.values() for batch in each]

    def _request(self, batches: Mapping[int, Batch]) -> produce.ProduceRequest:
        parts = [produce.ProduceRequestPartition(index=each, records=batches[each].data) for each in batches]
        topic = produce.ProduceRequestTopic(name=self.records.topic, partition_data=parts)
        timeout_ms = self.timeout_ms or self.client.chance.choice(PRODUCE_TIMEOUTS_MS)
        return produce.ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=timeout_ms, topic_data=[topic]
        )

    def _answered(self, batch: Batch, part: produce.ProduceResponsePartition, *, is_next: bool) -> bool:
        """Whether the outcome is known now. `is_next`: that of all batches before it is."""
        code, history = ErrorCode(part.error_code), self.records.history
        if code is ErrorCode.NONE:
            history.acknowledged |= {sent: part.base_offset + each for each, sent in enumerate(batch.sent)}
            self.records.acknowledged += len(batch.sent)
            self.records.progressed(batch.partition, self.client.world.loop.time())
            return True
        if not self.is_idempotent:
            if code not in UNKNOWN:
                history.failed += batch.sent
            return code not in UNKNOWN
        is_behind_a_gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_next
        if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR or is_behind_a_gap:
            return False
        self.records.broken.append(f"refused: {batch.sent[0].value!r} of an idempotent producer: {code.name}")
        return True

    def _keeps_order(self, batch: Batch, base: int, ends: dict[int, int]) -> None:
        """`ends`: of the batches that one connection brought before it, by partition."""
        end = ends.get(batch.partition, 0)
        if base < end:
            self.records.broken.append(
                f"overtaken: {batch.sent[0].value!r} is at {batch.partition}/{base}, the batch before it ends at {end}"
            )
        ends[batch.partition] = base + len(batch.sent)


def in_turns(batches: Sequence[B], place_of: Callable[[B], P]) -> list[dict[P, B]]:
    """What each request has: at most one batch of a partition."""
    turns: list[dict[P, B]] = []
    for batch in batches:
        turn = next((each for each in turns if place_of(batch) not in each), None)
        if turn is None:
            turns.append(turn := {})
        turn[place_of(batch)] = batch
    return turns


@dataclass(eq=False)
class Reader:
    """Follows one partition."""

    client: Client
    records: Records
    partition: int
    offset: int = 0
    isolation: int = 0
    """Kafka's number of the isolation level: 1 is read_committed."""
    bytes_max: int = FETCH_BYTES
    """Of an answer."""
    goes_back: float = 0.1
    """How often, at the end of the log, it begins anew at an offset that it has passed."""

    async def run(self) -> None:
        while not self.client.world.stopping:
            before = self.offset
            if not await self.step(self.client.patience_ms()):
                await self.client.rest()
            elif self.offset == before and self.client.chance.random() < self.goes_back:
                self.offset = self.client.chance.randint(max(0, before - BACK_MAX), before)

    async def step(self, wait_ms: int = 500) -> bool:
        """One Fetch; whether it was answered."""
        try:
            (part,) = await fetched(self.client, [self], wait_ms)
        except Unanswered:
            return False
        return self.answered(part)

    def answered(self, part: fetch.FetchResponsePartition) -> bool:
        """Takes the records of an answer; false if it is an error."""
        code = ErrorCode(part.error_code)
        start = self.records.starts.get(self.partition, 0)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.offset < start:
            self.offset = start
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.records.broken.append(
                f"out of range: {self.partition}/{self.offset}, which was read, high watermark {part.high_watermark}"
            )
            self.offset = 0
        if code is not ErrorCode.NONE:
            return False
        self.records.fetched[self.partition] = self.client.world.loop.time()
        self._take(part, record_bytes(part))
        return True

    def _take(self, _part: fetch.FetchResponsePartition, data: Any) -> None:
        batches = []
        asked, due = self.offset, self.offset
        for header, batch in split_batches(data) if data else ():
            found = list(records_in(batch, header))
            batches.append((header.base_offset, header.base_offset + header.last_offset_delta, len(found)))
            for record in found:
                self.records.seen(self.partition, record.offset, record.value or b"")
            due = header.base_offset + header.last_offset_delta + 1
        self.records.broken += Answer(self.partition, asked, batches).skips()
        self.offset = due


def record_bytes(part: fetch.FetchResponsePartition) -> Any:
    """Of an answer to a Fetch."""
    return b"".join(part.records) if isinstance(part.records, (list, tuple)) else part.records


async def fetched(
    client: Client, readers: Sequence[Reader], wait_ms: int
) -> list[fetch.FetchResponsePartition]:
    """The answer to one Fetch for several readers of a topic. Raises Unanswered."""
    wanted = [
        fetch.FetchRequestPartition(
            partition=each.partition, fetch_offset=each.offset, partition_max_bytes=each.bytes_max
        )
        for each in readers
    ]
    request = fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=readers[0].bytes_max,
        isolation_level=readers[0].isolation,
        topics=[fetch.FetchRequestTopic(topic=readers[0].records.topic, partitions=wanted)],
    )
    answer = await client.ask(fetch, FETCH_V, request)
    return [part for topic in answer.responses for part in topic.partitions]


def asks_offset(topic_name: str, partition: int, timestamp: int, isolation: int = 0) -> Question:
    """ListOffsets of one partition."""
    wanted = list_offsets.ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)
    topic = list_offsets.ListOffsetsRequestTopic(name=topic_name, partitions=[wanted])
    request = list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    return list_offsets, LIST_V, request


async def end_of(client: Client, topic_name: str, partition: int, isolation: int = 0) -> int | None:
    """The high watermark, or for read_committed the last stable offset; None: there is no such topic."""
    question = asks_offset(topic_name, partition, LATEST, isolation)
    while True:
        answer = await client.patiently(*question)
        found = answer.topics[0].partitions[0]
        if found.error_code == ErrorCode.NONE:
            return int(found.offset)
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        await client.rest()


async def judge(client: Client, records: Records, partitions: int, tries_max: int = 1 << 60) -> None:
    """Reads the whole log, and holds it against the answers of the producers. A log that is deleted meanwhile is not
    judged."""
    records.values.clear()
    for partition in range(partitions):
        end = await end_of(client, records.topic, partition)
        reader = Reader(client, records, partition, records.starts.get(partition, 0))
        while end is not None and reader.offset < end:
            if not await reader.step():
                tries_max -= 1
                await client.rest()
            if not tries_max:
                return
        if end is None:
            return
    log: dict[int, list[tuple[int, bytes]]] = {}
    for (partition, offset), value in sorted(records.values.items()):
        log.setdefault(partition, []).append((offset, value))
    records.history.excuse(records.starts)
    records.broken += records.history.violations(log)
    records.broken += [
        f"duplicate: {value!r} was sent once, and is there {count} times"
        for value, count in Counter(records.values.values()).items()
        if count > 1 and value.decode().split(":")[0] not in records.history.idempotent
    ]
