"""Whichever commit records are lost: those that are made from the batches say the same of transactions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.log.heads import OpenTransaction, Seg
from kafscale.log.transactions import UNKNOWN_NUMBER, End, Event, Transactions
from kafscale.operations.rollforward.chain import Chain
from kafscale.operations.rollforward.transactions import Replay

from .lost_etcd import seg_of

PRODUCERS = (7, 8, 9)


@dataclass(frozen=True)
class Log:
    """One event for each offset, or none. `segs`: the commit records, as they were."""

    segs: tuple[Seg, ...]
    events: dict[int, tuple[Event, ...]]
    open: tuple[OpenTransaction, ...]


def log_of(random: Random, start: int) -> Log:
    log = Transactions()
    segs: list[Seg] = []
    events: dict[int, tuple[Event, ...]] = {}
    offset = start
    for _ in range(random.randint(1, 12)):
        base = offset
        found: list[Event] = []
        begun = {each.producer_id for each in log.open}
        for offset in range(base, base + random.randint(1, 4)):
            producer = random.choice(PRODUCERS)
            if producer in begun and random.random() < 0.5:
                found.append(End(producer_id=producer, commit=random.random() < 0.5, offset=offset))
                begun.remove(producer)
            elif random.random() < 0.7:
                found.append(
                    OpenTransaction(producer_id=producer, epoch=0, number=UNKNOWN_NUMBER, first=offset)
                )
                begun.add(producer)
        offset += 1
        segs.append(log.entry(seg_of(base, offset, 1, str(base)), found))
        events[base] = tuple(found)
    return Log(tuple(segs), events, log.open)


logs = st.builds(log_of, st.integers(min_value=0, max_value=1 << 32).map(Random), st.sampled_from((0, 20)))


@given(logs, st.integers(min_value=0, max_value=1 << 32).map(Random))
@settings(max_examples=300)
def test_made_commit_records_are_those_that_are_lost(log: Log, random: Random) -> None:
    share = random.random()
    told = {seg for seg in log.segs if random.random() < share}
    bare = tuple(seg if seg in told else seg_of(seg.base, seg.end, 1, seg.etag) for seg in log.segs)
    chain = Chain(segs=bare, start=bare[0].base, end=bare[-1].end)
    plain = {seg for seg in bare if not log.events[seg.base]}
    replay = Replay(chain, told, {})
    read = {seg.base: log.events[seg.base] for seg in replay.wanted(plain)}
    assert tuple(replay.take(seg, read.get(seg.base, ())) for seg in bare) == log.segs
    assert replay.open == log.open


def test_nothing_is_read_of_a_log_without_open_transactions_whose_commit_records_are_known() -> None:
    segs = (seg_of(0, 5, 1, "a"), seg_of(5, 9, 1, "b", unstable=2), seg_of(9, 12, 1, "c"))
    chain = Chain(segs=segs, start=0, end=12)
    assert list(Replay(chain, segs, {}).wanted(())) == []
    assert list(Replay(chain, segs[:2], {}).wanted(())) == [segs[1], segs[2]]
