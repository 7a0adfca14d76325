"""kill -9 at each point in the life of a bundle. The gate does it on a directory, and `make chaos` on S3 too.

Laws: every acknowledged record is read once and in order. A sweep leaves no bundle that no head names, and deletes none
that a head names. `kafscale fsck` is clean.

A proxy before etcd reads the requests of the instance, and kills it at the request that marks the point. After each
death, the sweep first runs while no instance lives. Then the next instance takes over and settles what is there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from kafscale.testkit.seaweed import require_weed

from e2e.harness.bundle_crashes import KEYS, LONG_MS, Site, Written, asks_for_the_cluster
from e2e.harness.etcd_gate import Side
from e2e.harness.services import until

MANY = 300
"""Partitions. A request to etcd has 100 commits at most, so these fill three, which may overtake each other."""
CREATOR_GRACE_MS = 5_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=["directory", pytest.param("s3", marks=pytest.mark.chaos)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    on_s3 = request.param == "s3"
    if on_s3:
        require_weed()
    with Site.opened(tmp_path_factory.mktemp("crashes"), on_s3=on_s3) as site:
        yield site


@pytest.fixture
def victim(site: Site) -> int:
    """The node id of a live instance: the one that survived the test before, or a new one."""
    return next(iter(site.instances), 0) or site.start()[0]


def test_after_the_seal_nothing_is_there(site: Site) -> None:
    site.kill_all()
    # Only the first bundle of an instance has this point, and first records of several partitions may be in several.
    victim, _ = site.start()
    written = Written.to(site, "sealed", 1)
    before = site.bundles()
    trap = site.trap(victim, asks_for_the_cluster)
    sent = written.send()
    trap.wait()
    site.kill(victim)
    assert (site.bundles(), set(written.ends())) == (before, {0})
    site.swept()
    site.start()
    sent.result()
    site.nothing_is_left(written)


def test_after_the_put_the_sweep_raises_the_epochs_and_deletes_the_bundle(site: Site, victim: int) -> None:
    written = unnamed(site, victim, "stored")
    report = site.swept()
    assert (report.deleted, report.bumped) == (1, written.partitions)
    site.start()
    written.write()
    site.nothing_is_left(written)


def unnamed(site: Site, victim: int, topic: str) -> Written:
    """The victim died between the PUT of a bundle and the first commit of it. The next `write` is acknowledged."""
    written = Written.to(site, topic)
    written.write()
    trap = site.trap(victim, written.commits())
    written.send()
    trap.wait()
    site.kill(victim)
    assert set(written.ends()) == {1}
    assert len(site.bundles() - site.named()) >= 1
    return written


def test_after_one_of_three_requests_its_partitions_keep_the_bundle(site: Site) -> None:
    site.kill_all()
    # The swap of a settled segment would take a commit's place in the request that is counted.
    victim, _ = site.start(settle_ms=LONG_MS)
    written = Written.to(site, "partly", MANY)
    written.write()
    trap = site.trap(victim, written.commits(), passing=1)
    sent = written.send()
    trap.wait()
    until("one request is applied", lambda: 2 in written.ends())
    site.kill(victim)
    assert written.ends().count(2) == 100
    assert not site.bundles() - site.named()
    site.swept()
    site.start()
    sent.result()
    site.nothing_is_left(written)


def test_after_a_commit_without_an_answer_a_repeat_is_known(site: Site, victim: int) -> None:
    written = Written.to(site, "unanswered")
    written.write()
    trap = site.trap(victim, written.commits(), Side.AFTER)
    sent = written.send()
    trap.wait()
    site.kill(victim)
    assert set(written.ends()) == {2}
    site.swept()
    site.start()
    sent.result()
    assert set(written.ends()) == {2}, "a repeat was written"
    site.nothing_is_left(written)


@pytest.mark.parametrize("index", [False, True], ids=["without-index", "with-index"])
def test_before_the_swap_a_settled_segment_is_replaced(site: Site, victim: int, index: bool) -> None:
    """The segment is stored before its index, and the index before the swap. The death is before the swap; the test
    itself deletes the index for the death before that."""
    written = Written.to(site, f"unswapped-{index}")
    trap = site.trap(victim, written.swaps())
    written.write()
    trap.wait()
    site.kill(victim)
    settled = sorted(site.objects(KEYS.topic_prefix(written.topic)))
    assert any(key.endswith(".kfs") for key in settled)
    if not index:
        for key in settled:
            if key.endswith(".index"):
                site.delete_object(key)
    assert written.slices() == written.partitions
    assert site.swept().deleted == 0
    site.start()
    written.write()
    site.nothing_is_left(written)


def test_after_the_swap_the_sweep_deletes_the_bundle(site: Site, victim: int) -> None:
    written = Written.to(site, "swapped", 1)
    trap = site.trap(victim, written.swaps(), Side.AFTER)
    written.write()
    trap.wait()
    site.kill(victim)
    assert (written.slices(), len(site.bundles())) == (0, 1)
    assert site.swept().deleted == 1
    site.start()
    written.write()
    site.nothing_is_left(written)


def test_after_the_bump_the_next_sweep_deletes_the_bundle(site: Site, victim: int) -> None:
    """Here upkeep dies. The next owner claims before the next sweep."""
    written = unnamed(site, victim, "raised")
    epochs = {head.epoch for head in written.heads().values()}
    unnamed_bundles = site.bundles() - site.named()
    upkeep, _ = site.start("upkeep")
    trap = site.trap(upkeep, written.bumps(), Side.AFTER)
    trap.wait()
    site.kill(upkeep)
    heads = written.heads().values()
    assert "" in {head.owner for head in heads}
    assert max(head.epoch for head in heads) == max(epochs) + 1
    assert unnamed_bundles <= site.bundles()
    site.start()
    written.write()
    site.nothing_is_left(written)


def test_a_creator_that_was_paused_deletes_only_what_is_dead(site: Site) -> None:
    """Its timer ends while its lease is gone. The next owner names the last bundle of the creator, and has written one
    itself."""
    site.kill_all()
    creator, process = site.start(grace_ms=CREATOR_GRACE_MS)
    written = Written.to(site, "paused")
    written.write()
    until("every slice is settled", lambda: written.slices() == 0)
    written.write()
    os.kill(process.process.pid, signal.SIGSTOP)
    alive = site.named()
    dead = site.bundles() - alive
    assert dead, "the machine was too slow: the grace was over"
    assert alive, "the machine was too slow: the last slices are settled"
    other, _ = site.start(settle_ms=LONG_MS)
    inside = site.deployment.inside()
    until("its lease is gone", lambda: all(each.node_id != creator for each in inside.instances("produce")))
    written.write()
    os.kill(process.process.pid, signal.SIGCONT)
    until("it deletes what is dead", lambda: not dead & site.bundles())
    assert alive < site.named() <= site.bundles()
    written.is_read_once_in_order()
    site.kill(creator)
    site.kill(other)
    site.swept()
    site.start()
    site.nothing_is_left(written)
