"""Which ends are sent where and when: until each participant has confirmed, and to nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.coordinator.transactions import closer as closer_module
from kafscale.coordinator.transactions.closer import LAST_PAUSE_MS, Closer, End, Send
from kafscale.coordinator.transactions.model import Ended
from kafscale.storage.transactions import ClosingTransaction, Participant, Participants
from transaction_desk import P0, P1

GROUP = "group"
CLOSING = ClosingTransaction(
    number=4,
    producer_id=7,
    marker_epoch=1,
    bumped=True,
    commit=True,
    coordinator_epoch=2,
    awaited=Participants.of(P0, P1, GROUP),
)
OWNERS: dict[Participant, str] = {P0: "one", P1: "one", GROUP: "two"}


def sent(found: list[Send]) -> dict[str, set[Participant]]:
    return {send.to: {end.participant for end in send.ends} for send in found}


def closing_of(*some: Participant, number: int = 4) -> ClosingTransaction:
    return replace(CLOSING, number=number, awaited=Participants.of(*some))


def test_a_decision_is_sent_at_once_and_once() -> None:
    closer = Closer()
    closer.put("id", CLOSING, 100)
    assert closer.next_deadline == 100
    found = closer.sends(100, OWNERS.get)
    assert sent(found) == {"one": {P0, P1}, "two": {GROUP}}
    assert all(replace(ended, awaited=CLOSING.awaited) == CLOSING for _, ended in found[0].transactions)
    assert closer.sends(10_000, OWNERS.get) == []
    assert closer.next_deadline is None


def test_what_is_confirmed_is_told_to_its_id_and_the_rest_is_sent_again() -> None:
    closer = Closer()
    closer.put("id", closing_of(P0, P1), 0)
    (send,) = closer.sends(0, OWNERS.get)
    heard = closer.answered(send, [End("id", 7, 4, P1)], 5)
    assert heard == [("id", Ended(producer_id=7, number=4, participants=Participants.of(P1)))]
    assert closer.next_deadline == 25
    assert closer.sends(24, OWNERS.get) == []
    assert sent(closer.sends(25, OWNERS.get)) == {"one": {P0}}
    assert closer.awaited_count == 1


def test_pauses_grow_up_to_a_second() -> None:
    closer, now_ms, pauses = Closer(), 0, []
    closer.put("id", closing_of(P0), now_ms)
    for _ in range(8):
        (send,) = closer.sends(now_ms, OWNERS.get)
        closer.unanswered(send, now_ms)
        assert closer.next_deadline is not None
        pauses.append(closer.next_deadline - now_ms)
        now_ms = closer.next_deadline
    assert pauses == [20, 40, 80, 160, 320, 640, LAST_PAUSE_MS, LAST_PAUSE_MS]


def test_a_change_of_the_views_ends_the_pauses() -> None:
    closer = Closer()
    closer.put("id", closing_of(P0, P1), 0)
    assert closer.sends(0, lambda _: None) == []
    assert closer.sends(19, OWNERS.get) == []
    closer.views_changed(19)
    (send,) = closer.sends(19, OWNERS.get)
    closer.views_changed(20)
    assert closer.sends(20, OWNERS.get) == [], "it is under way"
    closer.unanswered(send, 30)
    assert closer.next_deadline == 50


def test_ids_share_messages_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closer_module, "ENDS_TOGETHER", 3)
    closer = Closer()
    for name in ("a", "b"):
        closer.put(name, closing_of(P0, P1), 0)
    found = closer.sends(0, OWNERS.get)
    assert [len(send.ends) for send in found] == [3, 1]
    assert len({end for send in found for end in send.ends}) == 4


def test_an_id_whose_slot_is_lost_is_sent_no_more_and_from_the_start_if_it_comes_back() -> None:
    closer = Closer()
    closer.put("id", closing_of(P0), 0)
    (send,) = closer.sends(0, OWNERS.get)
    closer.put("id", None, 1)
    closer.unanswered(send, 2)
    assert closer.next_deadline is None
    closer.put("id", closing_of(P0), 3)
    assert closer.next_deadline == 3


def test_a_confirmed_end_is_not_sent_again_before_its_id_has_heard_of_it() -> None:
    closer = Closer()
    closer.put("id", closing_of(P0, P1), 0)
    (send,) = closer.sends(0, OWNERS.get)
    closer.answered(send, [End("id", 7, 4, P0)], 1)
    closer.put("id", closing_of(P0, P1), 2)
    assert sent(closer.sends(100, OWNERS.get)) == {"one": {P1}}


def test_the_next_transaction_of_an_id_is_another_end() -> None:
    closer = Closer()
    closer.put("id", closing_of(P0), 0)
    (late,) = closer.sends(0, OWNERS.get)
    closer.put("id", closing_of(P0, number=5), 1)
    assert closer.answered(late, late.ends, 2) == [
        ("id", Ended(producer_id=7, number=4, participants=Participants.of(P0)))
    ]
    (send,) = closer.sends(2, OWNERS.get)
    assert [end.number for end in send.ends] == [5]


@given(st.lists(st.tuples(st.sampled_from("slcv"), st.integers(0, 400)), max_size=60))
def test_left_alone_every_end_is_confirmed(moves: list[tuple[str, int]]) -> None:
    """Whatever was lost before: `s`ent, `l`ost, `c`onfirmed in part, `v`iews changed."""
    closer, now_ms, under_way = Closer(), 0, list[Send]()
    awaited = set(CLOSING.awaited)
    closer.put("id", CLOSING, 0)
    for kind, how in moves:
        now_ms += how
        if kind == "s":
            under_way += closer.sends(now_ms, OWNERS.get)
        elif kind == "v":
            closer.views_changed(now_ms)
        elif under_way:
            send = under_way.pop(how % len(under_way))
            for _, ended in closer.answered(send, send.ends[: how % 2] if kind == "c" else (), now_ms):
                awaited -= set(ended.participants)
    for send in under_way:
        closer.unanswered(send, now_ms)
    for _ in range(10):
        now_ms += LAST_PAUSE_MS
        for send in closer.sends(now_ms, OWNERS.get):
            for _, ended in closer.answered(send, send.ends, now_ms):
                awaited -= set(ended.participants)
    assert not awaited
    assert closer.awaited_count == 0
