"""An answer has one room, however many things are in it."""

from __future__ import annotations

from kafscale.runtime.answer_room import AnswerRoom


def test_what_does_not_fit_takes_nothing_and_what_fits_leaves_less() -> None:
    room = AnswerRoom(10)
    assert [room.take(size) for size in (11, 6, 5, 4, 1)] == [False, True, False, True, False]


def test_the_refusal_names_the_limit_and_its_setting() -> None:
    assert "10 bytes (KAFSCALE_ANSWER_BYTES_MAX)" in AnswerRoom(10).refusal
