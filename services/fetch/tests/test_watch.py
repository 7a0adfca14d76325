"""One watch serves an instance, however many topics it reads, and an instance holds only what it serves."""

import asyncio
import re
import urllib.request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.fetch.heads import FEW_PARTITIONS, Heads
from kafscale.log.heads import Head, Meta, encode_head, encode_meta
from kafscale.runtime.clock import SystemClock
from kafscale.storage.etcd.client import (
    EtcdClient,
    EventKind,
    KeyValue,
    Range,
    RangeResult,
    WatchBatch,
    WatchEvent,
)
from kafscale.storage.keys import Keyspace, PartitionKey, TopicId
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.clock import ManualClock
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

TOPICS = 300
WATCHES = re.compile(r"^etcd_debugging_mvcc_(watch_stream|watcher)_total (\S+)$", re.MULTILINE)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def watches(endpoint: str) -> dict[str, float]:
    """Watch streams and watchers that etcd has open, of all clients."""
    page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{endpoint}/metrics", timeout=10).read())
    return {kind: float(count) for kind, count in WATCHES.findall(page.decode())}


async def test_hundreds_of_topics_are_read_over_one_watch(
    etcd, etcd_server, keyspace, store, serve, until
) -> None:
    topics = [await create_topic(etcd, keyspace, f"t{n}") for n in range(TOPICS)]
    logs = [LogBuilder(etcd, keyspace, store, topic) for topic in topics]
    for log in logs[:2]:
        await log.append(records(2))
    async with serve(etcd, keyspace, store) as client:
        heads = client.service.heads
        await client.topics.refresh()
        await client.fetch(topics[0], 0)
        await until(lambda: heads.revision((topics[0].topic_id, 0)) >= logs[1].revision)
        before = await watches(etcd_server.endpoint)
        for topic in topics:
            await client.fetch(topic, 0)
        assert (heads.topics_followed, heads.partitions_held) == (TOPICS, TOPICS)
        after = await watches(etcd_server.endpoint)
        assert after["watch_stream"] >= 1
        more = {kind: after[kind] - before[kind] for kind in after}
        assert max(more.values()) < 10, (
            "a few may begin or end meanwhile; a watch per topic would be hundreds"
        )
        calls = [client.start_fetch(topic, 0, max_wait_ms=60_000) for topic in topics[2:]]
        await until(lambda: client.service.fetch.held_requests == len(calls))
        reads = heads.reads
        for log in logs[2:]:
            await log.append(records(1))
        async with asyncio.timeout(30):
            answers = [(await call.fetched()).responses[0].partitions[0] for call in calls]
        assert [answer.high_watermark for answer in answers] == [1] * len(calls)
        assert heads.reads == reads, "the one watch woke them all"


async def test_an_instance_that_holds_nothing_has_no_watch(
    etcd, etcd_server, keyspace, store, serve, until
) -> None:
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, store, topic)
    async with serve(etcd, keyspace, store, fetch_idle_topic_ms=1_000) as client:
        heads = client.service.heads
        await client.topics.refresh()
        await log.append(records(1))
        assert heads._following is None, "nobody has asked for anything yet"
        for end in (1, 3):  # the watch begins again after it has ended
            await client.fetch(topic, 0)
            await until(lambda: heads._following is not None)
            waiting = client.start_fetch(topic, end, max_wait_ms=60_000)
            await until(lambda: client.service.fetch.held_requests == 1)
            reads = heads.reads
            await log.append(records(2))
            async with asyncio.timeout(30):
                answer = (await waiting.fetched()).responses[0].partitions[0]
            assert answer.high_watermark == end + 2
            assert heads.reads == reads, "the watch woke the request"
            await until(lambda: heads._following is None, timeout_s=30)
            assert heads.partitions_held == 0


async def test_an_instance_that_nobody_asks_ends_its_watch_long_before_partitions_are_idle(
    etcd, keyspace, store, serve, until
) -> None:
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, store, topic)
    async with serve(etcd, keyspace, store, fetch_idle_topic_ms=600_000) as client:
        heads = client.service.heads
        await client.topics.refresh()
        await log.append(records(1))
        waiting = client.start_fetch(topic, 1, max_wait_ms=60_000)
        await until(lambda: client.service.fetch.held_requests == 1 and heads._following is not None)
        heads._asked_ms -= 60_000  # the request was held for so long
        heads.drop_idle()
        reads = heads.reads
        await log.append(records(1))
        async with asyncio.timeout(30):
            answer = (await waiting.fetched()).responses[0].partitions[0]
        assert answer.high_watermark == 2
        assert heads.reads == reads, "the watch of a held request goes on"
        await until(lambda: heads._following is None, timeout_s=60)
        await log.append(records(1))
        assert (await client.fetch(topic, 2)).high_watermark == 3, "what was committed meanwhile is read"


FEW = [(TopicId(b"t" * 16), n) for n in range(FEW_PARTITIONS)]


@pytest.mark.parametrize(
    ("asked", "asked_later", "gone_at_1_s"),
    [(FEW[:2], [], True), (FEW, [], True), (FEW[:2], FEW[1:2], False), ([*FEW, (FEW[0][0], -1)], [], False)],
    ids=["nobody asks", "few at most", "somebody asks", "too many to read again"],
)
def test_partitions_are_dropped_early_if_they_are_few_and_nobody_asks_for_any(
    asked: list[PartitionKey], asked_later: list[PartitionKey], gone_at_1_s: bool
) -> None:
    clock = ManualClock(now_ms=50)
    heads = Heads(None, KEYSPACE, clock=clock, tasks=None)  # type: ignore[arg-type]
    for key in asked:
        heads.known(key)
    clock.advance(999)
    heads.drop_idle()
    assert heads.partitions_held == len(asked)
    for key in asked_later:
        heads.known(key)
    clock.advance(1)
    heads.drop_idle()
    assert (heads.partitions_held == 0) is gone_at_1_s
    assert heads.partitions_held in (0, len(asked)), "all or none"
    assert heads._needed.is_set() is not gone_at_1_s
    clock.advance(9_999)
    heads.drop_idle()
    assert (heads.partitions_held, heads._needed.is_set()) == (0, False)


async def test_an_instance_holds_only_the_partitions_that_it_was_asked_for(
    etcd, keyspace, store, serve, until
) -> None:
    topic = await create_topic(etcd, keyspace, "t", partitions=50)
    logs = [LogBuilder(etcd, keyspace, store, topic, partition) for partition in range(50)]
    async with serve(etcd, keyspace, store, fetch_partitions=3) as client:
        heads = client.service.heads
        await client.fetch(topic, 0)
        for log in logs:
            await log.append(records(1))
        await until(lambda: heads.known((topic.topic_id, 0)).next == 1)
        await until(lambda: heads._watched >= logs[-1].revision)
        assert heads._table.held() == [(topic.topic_id, 0)]
        for partition in (1, 2, 3, 4):
            assert (await client.list_offsets(topic, -1, partitions=[partition])).offset == 1
        assert [partition for _, partition in heads._table.held()] == [2, 3, 4]
        assert bytes((await client.fetch(topic, 0)).records) == logs[0].expected(0)


async def test_a_watch_whose_history_was_compacted_begins_again_and_misses_nothing(
    etcd, keyspace, store, serve, until, monkeypatch
) -> None:
    """The history is gone when the watch is opened; what was committed meanwhile is read."""
    topic = await create_topic(etcd, keyspace, "t")
    log = LogBuilder(etcd, keyspace, store, topic)
    await log.append(records(3))
    real, opened = EtcdClient.watch, []

    def watch(self, key, **how):
        if key == keyspace.metas_prefix():
            opened.append(how["start_revision"])
            if len(opened) == 1:
                how["start_revision"] = 1
        return real(self, key, **how)

    monkeypatch.setattr(EtcdClient, "watch", watch)
    await etcd.compact(log.revision)
    async with serve(etcd, keyspace, store) as client:
        heads, key = client.service.heads, (topic.topic_id, 0)
        await client.fetch(topic, 0)
        await until(lambda: heads.resyncs == 1 and len(opened) == 2)
        await log.append(records(2))
        await until(lambda: heads.known(key).next == 5)
        assert heads.reads == 1


def test_the_watched_range_holds_all_heads_and_metas_and_few_other_keys() -> None:
    keyspace = Keyspace("default")
    heads = Heads(None, keyspace, clock=SystemClock(), tasks=None)  # type: ignore[arg-type]
    topic_id = TopicId(b"\xff" * 16)
    within = [keyspace.head(topic_id, 9), keyspace.meta(TopicId(bytes(16)), 0)]
    rarely_written = [keyspace.owner(topic_id, 0), keyspace.node("fetch", 1)]
    outside = [keyspace.topic("t"), keyspace.pid_next(), keyspace.compaction_pass(topic_id, 0)]
    outside += [keyspace.live("fetch", 1, "boot"), keyspace.cluster(), keyspace.job_run("lag")]
    outside += [Keyspace("default2").head(topic_id, 0), Keyspace("another").meta(topic_id, 0)]
    inside = [
        key for key in within + rarely_written + outside if heads._range_start <= key < heads._range_end
    ]
    assert inside == within + rarely_written


KEYSPACE = Keyspace("model")
KEYS = tuple((TopicId(b"t" * 16), n) for n in range(2))
ABSENT = (0, 0)
# A commit writes the head, a checkpoint head and meta together, a deletion removes both.
histories = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["commit", "checkpoint", "delete"])),
    min_size=1,
    max_size=16,
)


class Asked:
    """A read that was sent: etcd executes it at some revision between now and the answer."""

    def __init__(self, reads: list[Range], sent_at: int) -> None:
        self.reads = reads
        self.sent_at = sent_at
        self.answer: asyncio.Future[list[RangeResult]] = asyncio.get_running_loop().create_future()


class Model:
    """etcd's history, a watch that lags behind it, and reads whose answers come late."""

    def __init__(self, history: list[tuple[PartitionKey, str]], tasks: asyncio.TaskGroup) -> None:
        self.history = history  # event n has revision n + 1
        self.written = 0
        self.watched = 0
        self.asked: list[Asked] = []
        self.running: list[asyncio.Task[object]] = []
        self.heads = Heads(self, KEYSPACE, clock=SystemClock(), tasks=tasks)  # type: ignore[arg-type]

    def values(self, revision: int) -> dict[bytes, KeyValue]:
        """Every key's value as of the revision."""
        found: dict[bytes, KeyValue] = {}
        for number, (key, kind) in enumerate(self.history[:revision], 1):
            for raw in self.touched(key, kind):
                if kind == "delete":
                    found.pop(raw, None)
                else:
                    found[raw] = self.put(raw, number)
        return found

    def touched(self, key: PartitionKey, kind: str) -> list[bytes]:
        raw = [KEYSPACE.head(*key), KEYSPACE.meta(*key)]
        return raw[:1] if kind == "commit" else raw

    def put(self, raw: bytes, revision: int) -> KeyValue:
        """A head says its revision as `next`, a meta as `log_start`."""
        head = Head(epoch=1, topic="t", next=revision, lso=revision)
        is_head = raw.startswith(KEYSPACE.heads_prefix())
        value = encode_head(head) if is_head else encode_meta(Meta(log_start=revision))
        return KeyValue(raw, value, 1, revision, 1, 0)

    def truth(self, key: PartitionKey, revision: int) -> tuple[int, int]:
        found = self.values(revision)
        head, meta = found.get(KEYSPACE.head(*key)), found.get(KEYSPACE.meta(*key))
        return (head.mod_revision if head else 0, meta.mod_revision if meta else 0)

    async def ranges(self, reads: list[Range], *, timeout_s: float) -> list[RangeResult]:
        asked = Asked(reads, self.written)
        self.asked.append(asked)
        return await asked.answer

    async def answer(self, asked: Asked, revision: int) -> None:
        assert asked.sent_at <= revision <= self.written
        self.asked.remove(asked)
        values = self.values(revision)
        asked.answer.set_result(
            [RangeResult((values[read.key],) if read.key in values else (), revision) for read in asked.reads]
        )
        await self.settle()

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    def moves(self) -> list[str]:
        moves = ["write"] if self.written < len(self.history) else []
        moves += ["watch"] if self.watched < self.written else []
        moves += ["read"] if moves and len(self.asked) < 3 else []
        moves += ["drop", "begin again"] if moves else []
        moves += ["answer"] if self.asked else []
        return moves

    async def move(self, kind: str, data: st.DataObject) -> None:
        match kind:
            case "write":
                self.written += 1
            case "watch":
                self.deliver()
            case "read":
                await self.read(data.draw(st.sampled_from(KEYS)))
            case "drop":
                self.heads._table.drop_unused(since_ms=1 << 60)
            case "begin again":
                await self.begin_again()
            case "answer":
                asked = data.draw(st.sampled_from(self.asked))
                await self.answer(asked, data.draw(st.integers(asked.sent_at, self.written)))

    async def read(self, key: PartitionKey) -> None:
        self.heads.known(key)
        self.running.append(asyncio.create_task(self.heads._read([key])))
        await self.settle()

    async def begin_again(self) -> None:
        """As `run` does it: read, then watch from there."""

        async def run() -> None:
            self.watched = max(self.watched, await self.heads._read_copy())

        self.running.append(asyncio.create_task(run()))
        await self.settle()

    def deliver(self) -> None:
        """The watch's next revision."""
        key, kind = self.history[self.watched]
        self.watched += 1
        event = EventKind.DELETE if kind == "delete" else EventKind.PUT
        raws = self.touched(key, kind)
        kvs = [self.put(raw, self.watched) for raw in raws]
        self.heads._apply(WatchBatch(tuple(WatchEvent(event, kv) for kv in kvs), self.watched))

    def check(self) -> None:
        for key in self.heads._table.held():
            state = self.heads._table.state(key)
            if state is not None:
                possible = {self.truth(key, at) for at in range(self.heads.revision(key), self.written + 1)}
                assert (state.next, state.log_start) in possible, (
                    "older than it says, or half of a checkpoint"
                )


async def test_a_partition_asked_for_while_all_are_read_again_misses_no_change() -> None:
    """It was read just before the change, and the watch begins just after it."""
    async with asyncio.TaskGroup() as tasks:
        model = Model([(KEYS[0], "commit")], tasks)
        await model.begin_again()
        await model.read(KEYS[0])
        now, read = model.asked
        await model.answer(read, 0)
        model.written = 1
        await model.answer(now, 1)
        for again in tuple(model.asked):
            await model.answer(again, 1)
        model.check()
        assert (model.watched, model.heads.known(KEYS[0]).next) == (1, 1)


async def test_what_is_read_again_is_not_said_to_be_known_before_it_is() -> None:
    async with asyncio.TaskGroup() as tasks:
        model = Model([(KEYS[0], "commit")], tasks)
        await model.read(KEYS[0])
        await model.answer(model.asked[0], 0)
        model.written = 1
        await model.begin_again()
        await model.answer(model.asked[0], 1)
        assert model.heads.revision(KEYS[0]) < 1
        model.check()
        await model.answer(model.asked[0], 1)
        assert (model.heads.revision(KEYS[0]), model.heads.known(KEYS[0]).next) == (1, 1)


@settings(max_examples=100)
@given(histories, st.data())
def test_reads_and_changes_in_any_interleaving_show_whole_states_that_are_as_new_as_they_say(
    history: list[tuple[PartitionKey, str]], data: st.DataObject
) -> None:
    async def interleave() -> None:
        async with asyncio.TaskGroup() as tasks:
            model = Model(history, tasks)
            while moves := model.moves():
                await model.move(data.draw(st.sampled_from(moves)), data)
                model.check()
            await asyncio.gather(*model.running)
            for key in model.heads._table.held():
                state = model.heads._table.state(key)
                if state is not None:
                    assert (state.next, state.log_start) == model.truth(key, len(history))

    asyncio.run(interleave())
