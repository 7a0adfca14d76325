"""Workers of one front door see each other's acks."""

import os

from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.worker import make_page, open_page


def test_the_highest_ack_counts_and_never_falls() -> None:
    acked = AckedRevision()
    for revision in (5, 3, 0):
        acked.saw(revision)
    assert acked.value == 5


def test_what_one_worker_has_acknowledged_every_worker_reads() -> None:
    page = make_page(2)
    one, other = (AckedRevision(open_page(page, 2), slot) for slot in range(2))
    one.saw(7)
    assert other.value == 7
    other.saw(4)
    assert (one.value, other.value) == (7, 7)
    other.saw(9)
    assert one.value == 9
    assert one.log_starts == other.log_starts == 0
    other.saw_log_starts(5)
    assert (one.value, one.log_starts, other.log_starts) == (9, 5, 5)
    os.close(page)
