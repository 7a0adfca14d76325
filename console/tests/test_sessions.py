"""Sessions end, are bounded, and never go on under an old id."""

from __future__ import annotations

from kafscale.console.sessions import AGE_S, IDLE_S, SESSIONS_MAX, USER_SESSIONS_MAX, Sessions


def test_a_session_ends_when_it_is_not_used() -> None:
    ended: list[str] = []
    sessions = Sessions(ended.append)
    sessions.begin("a", "alice", "login of alice", 0)
    assert sessions.find("a", IDLE_S - 1) == "login of alice"
    assert sessions.find("a", 2 * IDLE_S - 2) == "login of alice"
    assert sessions.find("a", 3 * IDLE_S) is None
    assert ended == ["login of alice"]
    assert sessions.find("a", 0) is None


def test_a_session_that_is_used_all_the_time_ends_too() -> None:
    sessions = Sessions(lambda _: None)
    sessions.begin("a", "alice", 1, 0)
    now = 0.0
    while now < AGE_S - 1:
        assert sessions.find("a", now) == 1
        now += IDLE_S / 2
    assert sessions.find("a", AGE_S) is None


def test_a_logout_ends_the_id_and_only_that() -> None:
    ended: list[int] = []
    sessions = Sessions(ended.append)
    sessions.begin("a", "alice", 1, 0)
    sessions.begin("b", "alice", 2, 0)
    sessions.end("a")
    sessions.end("a")
    assert (sessions.find("a", 1), sessions.find("b", 1), ended) == (None, 2, [1])


def test_one_user_takes_no_place_of_others() -> None:
    sessions = Sessions(lambda _: None)
    sessions.begin("bob", "bob", "bob", 0)
    for number in range(USER_SESSIONS_MAX + 10):
        sessions.begin(f"a{number}", "alice", "alice", 1)
    assert len(sessions) == USER_SESSIONS_MAX + 1
    assert sessions.find("a9", 2) is None
    assert sessions.find("a10", 2) == "alice"
    assert sessions.find("bob", 2) == "bob"


def test_the_one_that_was_unused_for_longest_goes_first() -> None:
    sessions = Sessions(lambda _: None)
    for number in range(SESSIONS_MAX):
        sessions.begin(str(number), f"user {number}", number, number / 1_000)
    assert sessions.find("0", 1) == 0
    sessions.begin("one more", "x", -1, 2)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find("0", 3) == 0
    assert sessions.find("1", 3) is None
