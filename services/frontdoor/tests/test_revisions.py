"""Workers of one front door see each other's acks."""

import os

from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.worker import make_page, open_page


def test_the_highest_ack_counts_and_never_falls() -> None:
    acked = AckedRevision()
    for revision in (5, 3, 0):
        acked.commits.saw(revision)
    assert acked.commits.value == 5


def test_what_one_worker_has_acknowledged_every_worker_reads() -> None:
    page = make_page(2)
    one, other = (AckedRevision(open_page(page, 2), slot) for slot in range(2))
    one.commits.saw(7)
    assert other.commits.value == 7
    other.commits.saw(4)
    assert (one.commits.value, other.commits.value) == (7, 7)
    other.commits.saw(9)
    assert one.commits.value == 9
    assert one.log_starts.value == other.log_starts.value == 0
    other.log_starts.saw(5)
    assert (one.commits.value, one.log_starts.value, other.log_starts.value) == (9, 5, 5)
    os.close(page)
