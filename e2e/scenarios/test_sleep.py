"""All processes stand still for a minute and more, as when a laptop sleeps or a virtual machine is paused.

Law: no process dies, nothing acknowledged is lost, and everything is served again. All leases are over by then, and
timers of a minute fire together with those of seconds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.commands import Commands
from e2e.harness.inside import metric
from e2e.harness.law import nap
from e2e.harness.raw import Raw
from e2e.harness.requests import TOPIC, batch, create, send
from e2e.harness.services import until

ASLEEP_S: Final = 62.0
"""Longer than leases (8 s) and than the minute after which views are read again."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data")
    cluster.start()
    yield cluster
    cluster.kill()


def sent(cluster: Cluster) -> bool:
    with Raw.to(cluster.bootstrap) as raw:
        return send(raw, batch()) == 0


def test_after_a_minute_of_sleep_the_same_processes_serve_everything_again(cluster: Cluster) -> None:
    commands = Commands(cluster.data_dir)
    with Raw.to(cluster.bootstrap) as raw:
        assert create(raw, TOPIC) == 0
    until("the topic takes records", lambda: sent(cluster))
    commands.ok("produce words", stdin="one\ntwo\n")
    consume = "consume words --group g --exit"
    assert commands.ok(consume).splitlines() == ["one", "two"]
    (fetch,) = cluster.inside().instances("fetch")
    until(
        "no long poll is held",
        lambda: set(metric(fetch.http_address, "kafscale_fetch_held_requests").values()) == {0.0},
    )
    before = cluster.tree()
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    nap(ASLEEP_S)
    for pid in before:
        os.kill(pid, signal.SIGCONT)
    commands.ok("produce words", stdin="three\n")
    assert commands.ok("consume words --exit").splitlines() == ["one", "two", "three"]
    until("records are taken", lambda: sent(cluster))
    assert commands.ok(consume).splitlines() == ["three"], "the group's offsets are there"
    roles = ("produce", "fetch", "coordinator", "admin", "frontdoor", "upkeep")
    until(
        "all are registered",
        lambda: all(len(cluster.inside().instances(role)) == 1 for role in roles),
    )
    assert cluster.tree() == before, f"a process died:\n{cluster.story()}"
    assert cluster.stop() == 0
    assert "clean" in cluster.fsck().stdout
