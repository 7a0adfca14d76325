"""The laws of a frame's timer: a time for the whole, a least rate, no long silence; our own pauses do not count."""

from kafscale.frontdoor.connection import FrameTimeouts, FrameTimer

LIMITS = FrameTimeouts(
    frame_ms_max=100_000,
    quiet_ms_max=60_000,
    pressed_quiet_ms_max=10_000,
    grace_ms=30_000,
    bytes_per_s_min=1_000,
)


def under_way(now_ms: int = 0) -> FrameTimer:
    timer = FrameTimer()
    timer.arrived(now_ms, new_frame=False, under_way=True)
    return timer


def wrong(
    timer: FrameTimer, now_ms: int, *, arrived_bytes: int = 1 << 30, pressed: bool = False
) -> str | None:
    return timer.wrong(LIMITS, now_ms, arrived_bytes=arrived_bytes, pressed=pressed)


def test_between_frames_there_is_no_hurry() -> None:
    timer = under_way()
    timer.arrived(10, new_frame=True, under_way=False)
    assert wrong(timer, 10_000_000) is None


def test_a_frame_that_stands_still_is_ended_and_sooner_when_others_wait_for_its_memory() -> None:
    timer = under_way()
    assert wrong(timer, 10_000, pressed=True) is None
    assert wrong(timer, 10_001, pressed=True) == "half a request"
    assert wrong(timer, 60_000) is None
    assert wrong(timer, 60_001) == "half a request"


def test_a_frame_that_trickles_is_ended() -> None:
    timer = under_way()
    for now_ms in range(0, 40_000, 1_000):
        timer.arrived(now_ms, new_frame=False, under_way=True)
    assert wrong(timer, 40_000, arrived_bytes=10_000) is None
    assert wrong(timer, 40_001, arrived_bytes=10_000) == "a request that comes too slowly"


def test_time_in_which_nobody_reads_is_not_the_clients() -> None:
    timer = under_way()
    timer.reading(yes=False, now_ms=5_000)
    assert wrong(timer, 90_000, arrived_bytes=1, pressed=True) is None
    timer.reading(yes=True, now_ms=90_000)
    assert wrong(timer, 95_000, arrived_bytes=1, pressed=True) is None
    assert wrong(timer, 95_001, arrived_bytes=1, pressed=True) == "half a request"


def test_a_frame_has_its_time_from_the_first_byte_whether_or_not_it_is_read() -> None:
    timer = under_way()
    timer.reading(yes=False, now_ms=1)
    assert wrong(timer, 100_000) is None
    assert wrong(timer, 100_001) == "a request that is not whole in time"


def test_a_pause_before_a_frame_began_is_none_of_it() -> None:
    timer = FrameTimer()
    timer.reading(yes=False, now_ms=0)
    timer.arrived(50_000, new_frame=False, under_way=True)  # what the transport had read already
    timer.reading(yes=True, now_ms=51_000)
    assert wrong(timer, 61_000, pressed=True) is None
    assert wrong(timer, 61_001, pressed=True) == "half a request"


def test_the_next_frame_has_its_own_time() -> None:
    timer = under_way()
    timer.arrived(90_000, new_frame=True, under_way=True)
    assert wrong(timer, 140_000) is None
    assert wrong(timer, 150_001) is not None
