"""The compare-and-swap of meta against an etcd in memory: others change meta in between, and answers get lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kafscale.log.heads import Meta, decode_meta, encode_meta
from kafscale.log.meta_swap import SENDS_MAX, Draft, Overtaken, build_swap, swap
from kafscale.storage.etcd.client import (
    Delete,
    EtcdUnknown,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    UnknownKind,
)
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.testkit.etcd_model.client import ModelClient
from kafscale.testkit.etcd_model.model import EtcdModel

KEYS = Keyspace("ns")
TOPIC = TopicId(b"0123456789abcdef")
HEAD, META = KEYS.head(TOPIC, 0), KEYS.meta(TOPIC, 0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.log.meta_swap.SEND_AGAIN_S", 0)


@dataclass(frozen=True)
class State:
    meta: Meta
    meta_revision: int
    head_created: int


class Etcd(ModelClient):
    """Loses the answers to the first swaps: `lost` says of each whether it is applied. `between` runs before a lost
    answer reaches its sender."""

    def __init__(self, *lost: bool, between: Callable[[Etcd], None] = lambda _: None) -> None:
        super().__init__(EtcdModel())
        self.lost = list(lost)
        self.between = between
        self.sent: list[Txn] = []

    async def txn(self, txn: Txn, **_how: object) -> TxnResult:
        self.sent.append(txn)
        if not self.lost:
            return await super().txn(txn)
        if self.lost.pop(0):
            await super().txn(txn)
        self.between(self)
        raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")

    def write(self, key: bytes, value: bytes) -> None:
        """By somebody else, and never lost."""
        self.model.txn(Txn(success=(Put(key, value),)))

    def lose(self, *keys: bytes) -> None:
        self.model.txn(Txn(success=tuple(Delete(key) for key in keys)))

    def value(self, key: bytes) -> bytes:
        kv = self.model.get(key)
        assert kv is not None
        return kv.value

    def meta(self) -> Meta:
        return decode_meta(self.value(META))

    def state(self) -> State:
        head, meta = self.model.get(HEAD), self.model.get(META)
        return State(
            meta=decode_meta(meta.value) if meta else Meta(),
            meta_revision=meta.mod_revision if meta else 0,
            head_created=head.create_revision if head else 0,
        )


def built(*lost: bool, **how: Any) -> Any:
    etcd = Etcd(*lost, **how)
    etcd.write(HEAD, b"head")
    etcd.write(META, encode_meta(Meta(log_start=3)))
    return etcd


def raised(meta: Meta) -> Meta:
    return replace(meta, gc_seq=meta.gc_seq + 1)


def freed_by_another(etcd: Etcd) -> None:
    etcd.write(META, encode_meta(replace(etcd.meta(), freed=etcd.meta().freed + 100)))


async def swapped(etcd: Any, prepared: Callable[[int], None] = lambda _: None) -> int:
    """Raises gc_seq. `prepared` is called between the read and the send of each try. The tries that it took."""
    tries = 0

    async def prepare() -> Draft[int]:
        nonlocal tries
        tries += 1
        seen = etcd.state()
        prepared(tries)
        return Draft(build_swap(KEYS, TOPIC, 0, seen, raised(seen.meta)), tries)

    return await swap(etcd, "t/0", prepare)


async def test_a_change_that_another_was_before_is_made_again_from_what_is_there_now() -> None:
    etcd = built()

    def race(tries: int) -> None:
        if tries <= 2:
            freed_by_another(etcd)

    assert await swapped(etcd, race) == 3
    assert etcd.meta() == Meta(log_start=3, gc_seq=1, freed=200)


async def test_who_is_overtaken_by_every_try_gives_up_and_has_changed_nothing() -> None:
    etcd = built()
    with pytest.raises(Overtaken, match=f"t/0: it changed under each of {TRIES_MAX} tries") as overtaken:
        await swapped(etcd, lambda _: freed_by_another(etcd))
    assert len(etcd.sent) == TRIES_MAX
    assert not overtaken.value.in_doubt
    assert etcd.meta().gc_seq == 0


async def test_a_log_whose_head_is_deleted_gets_no_meta() -> None:
    etcd = built()
    seen = etcd.state()
    etcd.lose(HEAD, META)
    for before in (seen, replace(seen, meta_revision=0)):  # or it had no meta yet
        assert not (await etcd.txn(build_swap(KEYS, TOPIC, 0, before, raised(seen.meta)))).succeeded
    assert etcd.model.get(META) is None


async def test_a_head_that_moves_does_not_refuse_the_swap_and_one_made_anew_does() -> None:
    etcd = built()
    assert await swapped(etcd, lambda _: etcd.write(HEAD, b"a commit")) == 1

    def replace_head(tries: int) -> None:
        if tries == 1:
            etcd.lose(HEAD)
            etcd.write(HEAD, b"another topic's")

    assert await swapped(etcd, replace_head) == 2


async def test_what_was_replaced_under_the_read_counts_as_a_try() -> None:
    etcd = built()
    reads = 0

    async def prepare() -> Draft[str] | None:
        nonlocal reads
        reads += 1
        return None

    with pytest.raises(Overtaken):
        await swap(etcd, "t/0", prepare)
    assert reads == TRIES_MAX
    assert etcd.sent == []


async def test_nothing_is_sent_when_nothing_is_to_change() -> None:
    etcd = built()

    async def prepare() -> Draft[str]:
        return Draft(None, "as it was")

    assert await swap(etcd, "t/0", prepare) == "as it was"
    assert etcd.sent == []


async def test_the_result_may_be_made_from_what_the_transaction_read() -> None:
    etcd = built()

    class Reading(Draft[bytes]):
        def applied(self, answer: TxnResult) -> bytes:
            (_, found) = answer.responses
            assert isinstance(found, RangeResult)
            return found.kvs[0].value

    async def prepare() -> Draft[bytes]:
        seen = etcd.state()
        etcd.write(HEAD, b"newer")
        return Reading(build_swap(KEYS, TOPIC, 0, seen, raised(seen.meta), Range(HEAD)), b"")

    assert await swap(etcd, "t/0", prepare) == b"newer"


# -- answers that are lost -------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [[False], [False, False], [False] * (SENDS_MAX - 1)])
async def test_a_swap_whose_answer_is_lost_is_sent_again_as_it_was(lost: list[bool]) -> None:
    etcd = built(*lost)
    assert await swapped(etcd) == 1
    assert len(etcd.sent) == len(lost) + 1
    assert len(set(etcd.sent)) == 1
    assert etcd.meta().gc_seq == 1


async def test_an_outcome_that_stays_unknown_is_reported_as_unknown() -> None:
    etcd = built(*[False] * SENDS_MAX)
    with pytest.raises(EtcdUnknown):
        await swapped(etcd)
    assert len(etcd.sent) == SENDS_MAX


class Settling(Draft[str]):
    """Knows after a refusal whether it was applied, and says what was asked of it."""

    truth = True
    asked: tuple[str, ...] = ()

    async def was_applied(self) -> bool:
        Settling.asked += ("was_applied",)
        return Settling.truth

    async def discard(self) -> None:
        Settling.asked += ("discard",)


async def settled(etcd: Any, *, truth: bool) -> str:
    Settling.truth, Settling.asked = truth, ()

    async def prepare() -> Draft[str]:
        seen = etcd.state()
        if seen.head_created == 0:
            raise Overtaken("t/0", "its head is gone")
        return Settling(build_swap(KEYS, TOPIC, 0, seen, raised(seen.meta)), "done")

    return await swap(etcd, "t/0", prepare)


async def test_a_swap_that_was_applied_before_its_answer_was_lost_is_not_made_twice() -> None:
    etcd = built(True)
    assert await settled(etcd, truth=True) == "done"
    assert etcd.meta().gc_seq == 1
    assert Settling.asked == ("was_applied",), "what it names must not be discarded"


async def test_a_swap_that_was_not_applied_is_cleaned_up_and_made_again() -> None:
    etcd = built(False, between=freed_by_another)
    assert await settled(etcd, truth=False) == "done"
    assert etcd.meta() == Meta(log_start=3, gc_seq=1, freed=100)
    assert Settling.asked == ("was_applied", "discard")


async def test_a_refusal_without_doubt_is_not_looked_into() -> None:
    etcd = built()
    first = True

    async def prepare() -> Draft[str]:
        nonlocal first
        seen = etcd.state()
        if first:
            freed_by_another(etcd)
        first = False
        return Settling(build_swap(KEYS, TOPIC, 0, seen, raised(seen.meta)), "done")

    Settling.asked = ()
    assert await swap(etcd, "t/0", prepare) == "done"
    assert Settling.asked == ("discard",)


async def test_a_doubt_outlives_the_tries_that_follow_it() -> None:
    """Another deletes the topic after the answer was lost: it was overtaken, and may have been applied before."""
    etcd = built(True, between=lambda etcd: etcd.lose(HEAD, META))
    with pytest.raises(Overtaken, match="its head is gone") as overtaken:
        await settled(etcd, truth=False)
    assert overtaken.value.in_doubt
