"""The laws of answers that wait: all are counted, large ones are reserved, who takes nothing goes first."""

from kafscale.frontdoor.memory import SMALL_ANSWER_BYTES, STUCK_MS, AnswerMemory, UnsentAnswers

MIB = 1 << 20


def given(memory: AnswerMemory, size: int, now_ms: int, unsent: UnsentAnswers | None = None) -> UnsentAnswers:
    """An answer of `size` bytes was written to a socket that takes nothing."""
    unsent = unsent or UnsentAnswers(moved_ms=now_ms)
    unsent.given_bytes += size
    memory.update(unsent, unsent_bytes=0, buffered_bytes=unsent.buffered_bytes + size, now_ms=now_ms)
    return unsent


def test_room_for_a_large_answer_is_reserved_and_without_room_a_small_one_is_asked_for() -> None:
    memory = AnswerMemory(64 * MIB)
    outlets = [UnsentAnswers() for _ in range(4)]
    granted = [memory.grant(one, 50 * MIB, large_expected=True) for one in outlets]
    assert granted == [16 * MIB, 16 * MIB, 16 * MIB, SMALL_ANSWER_BYTES]
    assert memory.used_bytes == 48 * MIB
    memory.settle(outlets[0])
    assert memory.grant(outlets[3], 10 * MIB, large_expected=True) == 10 * MIB


def test_who_had_little_to_read_reserves_nothing() -> None:
    memory = AnswerMemory(64 * MIB)
    assert memory.grant(UnsentAnswers(), 50 * MIB, large_expected=False) == SMALL_ANSWER_BYTES
    assert memory.grant(UnsentAnswers(), 1_000, large_expected=True) == 1_000
    assert memory.used_bytes == 0


def test_what_waits_is_counted_until_it_is_taken_or_its_connection_ends() -> None:
    memory = AnswerMemory(64 * MIB)
    unsent = given(memory, 10 * MIB, 0)
    memory.update(unsent, unsent_bytes=MIB, buffered_bytes=4 * MIB, now_ms=5)
    assert memory.used_bytes == 5 * MIB
    assert unsent.moved_ms == 5
    memory.leave(unsent)
    assert memory.used_bytes == 0


def test_the_connection_that_has_taken_nothing_for_longest_goes_first_and_no_more_than_needed() -> None:
    memory = AnswerMemory(64 * MIB)
    old = [given(memory, 16 * MIB, now_ms) for now_ms in (0, 1_000, 2_000)]
    small = given(memory, 1_000, 2_500)
    assert memory.victims(10_000) == []
    new = given(memory, 20 * MIB, 10_000)
    assert memory.victims(10_000) == [old[0]]
    memory.leave(old[0])
    assert memory.victims(10_000) == []
    assert (small.waiting_bytes, new.waiting_bytes) == (1_000, 20 * MIB)


def test_who_has_just_taken_something_is_spared_while_there_is_any_room() -> None:
    memory = AnswerMemory(64 * MIB)
    readers = [given(memory, 17 * MIB, 10_000) for _ in range(4)]
    assert memory.victims(10_500) == []
    readers.append(given(memory, 17 * MIB, 10_500))
    assert len(memory.victims(10_500)) == 2


def test_who_takes_nothing_for_a_minute_is_stuck_and_who_takes_a_byte_is_not() -> None:
    memory = AnswerMemory(64 * MIB)
    unsent = given(memory, MIB, 0)
    assert not unsent.is_stuck(STUCK_MS)
    assert unsent.is_stuck(STUCK_MS + 1)
    memory.update(unsent, unsent_bytes=0, buffered_bytes=MIB - 1, now_ms=STUCK_MS)
    assert not unsent.is_stuck(STUCK_MS + 1)


def test_a_part_of_an_answer_is_kept_only_while_there_is_room() -> None:
    memory = AnswerMemory(64 * MIB)
    assert all(memory.take(16 * MIB) for _ in range(4))
    assert not memory.take(1)
    memory.give_back(16 * MIB)
    assert memory.take(1)
    assert memory.used_bytes == 48 * MIB + 1


def test_who_has_taken_nothing_makes_room_for_a_part_that_comes() -> None:
    memory = AnswerMemory(64 * MIB)
    old, new = (given(memory, 32 * MIB, now_ms) for now_ms in (0, 9_500))
    assert memory.victims(10_000) == []
    assert memory.victims(10_000, MIB) == [old]
    memory.leave(old)
    assert memory.victims(10_000, 32 * MIB) == []
    assert memory.victims(10_000, 33 * MIB) == [], "who has just taken something is spared"
    assert not memory.take(33 * MIB)
    assert new.waiting_bytes == 32 * MIB


def test_who_waits_for_an_answer_of_ours_is_not_stuck() -> None:
    """What is ready behind a request that is not answered yet cannot be taken."""
    memory = AnswerMemory(64 * MIB)
    unsent = UnsentAnswers()
    memory.update(unsent, unsent_bytes=MIB, buffered_bytes=0, now_ms=0)
    assert not unsent.is_stuck(10 * STUCK_MS)
