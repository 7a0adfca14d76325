"""The picture counts the transactions that are not over, and warns of one that does not end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.operations.status import gather
from kafscale.operations.status.gather import look, read_unfinished
from kafscale.operations.status.picture import CLOSING_LONG_S, Unfinished, Unsettled, paint
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.storage.transactions import (
    ClosingTransaction,
    Participants,
    TransactionState,
    encode_transaction,
)

from .pictures import NOW_MS, with_slices

IDLE = TransactionState(id="", producer_id=1, timeout_ms=60_000, changed_ms=1)
UNDER_WAY = replace(IDLE, current=Participants.of("g"))
CLOSING = replace(
    IDLE,
    closing=ClosingTransaction(
        number=1,
        producer_id=1,
        marker_epoch=1,
        bumped=True,
        commit=True,
        coordinator_epoch=1,
        awaited=Participants.of("g"),
    ),
)


async def test_transactions_that_are_not_over_are_counted(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "RECORDS_PER_READ", 1)
    assert await read_unfinished(etcd, keyspace) == Unfinished()
    states = (
        IDLE,
        replace(UNDER_WAY, started_ms=7),
        replace(UNDER_WAY, started_ms=5),
        replace(CLOSING, changed_ms=3),
        replace(CLOSING, current=Participants.of("g"), started_ms=6, changed_ms=4),
    )
    for number, state in enumerate(states):
        name = f"id-{number}"
        key = keyspace.transaction(slot_of(name), name)
        await etcd.put(key, encode_transaction(replace(state, id=name)))
    await etcd.put(keyspace.transaction(slot_of("damaged"), "damaged"), b"\xff")
    expected = Unfinished(under_way=3, oldest_started_ms=5, closing=2, oldest_changed_ms=3)
    assert await read_unfinished(etcd, keyspace) == expected
    picture = await look(etcd, keyspace, ("e",), 0)
    assert (picture.transactions, picture.closing) == (3, 2)


@pytest.mark.parametrize(("age_s", "warns"), [(CLOSING_LONG_S - 1, False), (CLOSING_LONG_S, True)])
def test_one_that_does_not_end_is_a_warning(age_s: int, warns: bool) -> None:
    old = Unfinished(closing=1, oldest_changed_ms=NOW_MS - age_s * 1_000)
    picture = paint(replace(with_slices(Unsettled()), unfinished=old), {}, 1.0)
    assert picture.oldest_closing_s == age_s
    assert any(f"has not ended everywhere for {age_s} s" in each for each in picture.warnings) is warns
