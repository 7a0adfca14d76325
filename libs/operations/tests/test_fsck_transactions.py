"""fsck finds each way in which a head or an entry may be wrong about transactions, and nothing in a right log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from kafscale.log.heads import Aborted, Head, Meta, OpenTransaction, Seg, encode_head
from kafscale.log.manifests import decode_manifest, encode_manifest
from kafscale.log.transactions import End, Event
from kafscale.operations.fsck.checks import Partition
from kafscale.operations.fsck.run import Fsck, Verdict
from kafscale.operations.fsck.transaction_checks import TransactionWalk, check_stable_offset
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.records import build_batch


async def check(log: LogBuilder) -> Verdict:
    return await Fsck(log._etcd, log._keyspace, log._store, lambda *_: None).run()


@pytest.fixture(params=[False, True], ids=["segments", "slices"])
async def log(etcd: EtcdClient, keyspace: Keyspace, request: pytest.FixtureRequest) -> LogBuilder:
    """Producer 7: offsets 0-1 and 4 aborted (marker 5), 6-7 committed (8), 9-10 open. Producer 8: 2-3 aborted (11),
    12 open. Others: 13."""
    topic = await create_topic(etcd, keyspace, "orders")
    log = LogBuilder(etcd, keyspace, MemoryStore(), topic, as_slices=request.param)
    await log.append_raw([transactional(7, records(2)), transactional(8, records(2))])
    await log.append_raw([transactional(7, records(1)), marker(7, commit=False)])
    await log.append_raw([transactional(7, records(2), epoch=1), marker(7, commit=True, epoch=1)])
    await log.append_raw([transactional(7, records(2), epoch=2), marker(8, commit=False)])
    await log.append_raw([transactional(8, records(1)), build_batch(records(1))])
    assert [(each.producer_id, each.first) for each in log.head.open] == [(7, 9), (8, 12)]
    assert (log.head.lso, log.head.next) == (9, 14)
    await log.record_open()
    return log


async def test_a_log_with_transactions_is_clean_in_every_state(log: LogBuilder) -> None:
    assert (await check(log)).problems == []
    if log.as_slices:
        await log.settle_run(0, 2)
        assert (await check(log)).problems == []
    await log.checkpoint(keep=2)
    assert (await check(log)).problems == []
    for start in range(1, 14):  # in the middle of transactions
        await log.retain_from(start, delete=start in (4, 9))
        assert (await check(log)).problems == [], start


async def put(log: LogBuilder, head: Head) -> None:
    log.head = head
    await log._etcd.put(log._keyspace.head(log.topic.topic_id, 0), encode_head(head))


def entry(at: int, **changes: object) -> Callable[[LogBuilder], Awaitable[None]]:
    async def change(log: LogBuilder) -> None:
        seg = log.head.tail[at]
        await log.replace_segment(seg, replace(seg, **changes))  # type: ignore[arg-type]

    return change


def head(**changes: object) -> Callable[[LogBuilder], Awaitable[None]]:
    async def change(log: LogBuilder) -> None:
        await put(log, replace(log.head, **changes))  # type: ignore[arg-type]

    return change


def begun(producer_id: int, first: int, epoch: int = 0) -> OpenTransaction:
    return OpenTransaction(producer_id=producer_id, epoch=epoch, number=1, first=first)


OF_7 = Aborted(producer_id=7, first=0, last=5)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (entry(1, aborted=()), "producer 7 aborts at 5, and the entry does not list that"),
        (entry(1, aborted=(replace(OF_7, first=2),)), "what aborts at 5 began at 0, the entry says 2"),
        (entry(2, aborted=(OF_7,)), "the entry lists an aborted transaction, and 5 is no marker of it"),
        (entry(0, unstable=0), "the entry says that 4 was the last stable offset, the batches 0"),
        (entry(1, unstable=5), "the entry says that 1 was the last stable offset, the batches 2"),
        (head(lso=14), "the last stable offset is 14, and 9 by the open transactions"),
        (head(lso=15), "the last stable offset is 15, and 9 by the open transactions"),
        (head(open=(begun(7, 9, 2),)), "what producer 8 began at 12 is open and not in the head"),
        (
            head(open=(begun(7, 9, 2), begun(8, 13))),
            "the head says that producer 8 began at 13, the batches 12",
        ),
        (head(open=(begun(7, 9, 1), begun(8, 12))), "the open transaction at 9 is of epoch 2, not 1"),
        (head(open=(begun(7, 9, 2), begun(8, 12), begun(9, 13))), "producer 9 began at 13, the batches None"),
        (head(open=(), lso=14, transactional=False), "its entries list transactions, and its head"),
    ],
)
async def test_each_wrong_fact_is_named(
    log: LogBuilder, damage: Callable[[LogBuilder], Awaitable[None]], what: str
) -> None:
    await damage(log)
    problems = (await check(log)).problems
    assert any(what in problem.what for problem in problems), problems


async def test_an_entry_of_a_manifest_is_compared_too(log: LogBuilder) -> None:
    ref = await log.checkpoint(keep=2)
    listed = decode_manifest(await log._store.get(ref.key))
    segments = (listed.segments[0], replace(listed.segments[1], aborted=()), *listed.segments[2:])
    await log._store.put(ref.key, [encode_manifest(replace(listed, segments=segments))])
    (problem,) = (await check(log)).problems
    assert "producer 7 aborts at 5" in problem.what


async def test_nothing_is_judged_behind_a_segment_that_cannot_be_read(log: LogBuilder) -> None:
    await log._store.delete(log.segment_key(log.segments[0]))
    assert all("in the store" in problem.what for problem in (await check(log)).problems)


# --- the walk itself, where compaction took records -----------------------------------------------


def seg(base: int, end: int, *, key: str = "", unstable: int = 0, aborted: Sequence[Aborted] = ()) -> Seg:
    return Seg(
        base=base, last_delta=end - base - 1, size=1, etag="", crc32c=0, index_size=0, index_etag="", epoch=1, min_ts=0,
        max_ts=0, records=1, batches=1, created_ms=0, key=key, unstable=unstable, aborted=tuple(aborted),
    )  # fmt: skip


def walked(
    segs: Sequence[Seg],
    events: Sequence[Sequence[Event]],
    open_: Sequence[OpenTransaction] = (),
    start: int = 0,
) -> list[str]:
    end = segs[-1].end
    head = Head(
        epoch=1, topic="t", next=end, lso=min((each.first for each in open_), default=end), open=tuple(open_),
        transactional=True,
    )  # fmt: skip
    part = Partition(name="t/0", head=head, meta=Meta(log_start=start), segments=tuple(segs))
    walk = TransactionWalk(part, segs[0].base)
    problems = [*check_stable_offset(part)]
    for each, happened in zip(segs, events, strict=True):
        problems += walk.take("seg", each, happened)
    return [problem.what for problem in (*problems, *walk.finish())]


def test_compaction_took_what_a_transaction_began_with() -> None:
    marker_at_12 = [End(producer_id=7, commit=False, offset=12)]
    aborted = [Aborted(producer_id=7, first=3, last=12)]
    segs = [seg(0, 10, key="compacted", unstable=7), seg(10, 13, aborted=aborted)]
    assert walked(segs, [[], marker_at_12]) == []
    assert walked(segs, [[], [begun(7, 11), *marker_at_12]]) == []
    assert walked(segs, [[begun(7, 2)], marker_at_12]) == [
        "the entry says that 3 was the last stable offset, the batches 2",
        "what aborts at 12 began at 2, the entry says 3",
    ]
    plain = [seg(0, 10, unstable=7), segs[1]]
    assert walked(plain, [[], marker_at_12]) == [
        "the entry says that 3 was the last stable offset, the batches 10",
        "what aborts at 12 began at None, the entry says 3",
    ]


def test_a_log_start_took_what_an_open_transaction_began_with() -> None:
    segs = [seg(10, 13, unstable=9)]
    assert walked(segs, [[]], [begun(7, 4)], start=11) == []
    assert walked(segs, [[begun(7, 12)]], [begun(7, 4)], start=11) == []
    assert walked([seg(10, 13, unstable=1)], [[begun(7, 12)]], [begun(7, 12)], start=11) == []


def test_the_open_transactions_of_a_head_are_in_order_and_one_of_a_producer() -> None:
    segs = [seg(0, 4, unstable=4)]
    for open_ in ([begun(7, 1), begun(8, 0)], [begun(7, 0), begun(7, 1)]):
        assert any("out of order, or two" in what for what in walked(segs, [[]], open_))
    assert any("begins outside of [0, 4)" in what for what in walked(segs, [[]], [begun(7, 4)]))
