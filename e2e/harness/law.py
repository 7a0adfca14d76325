"""The law that every scenario with faults keeps, around whatever the scenario does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kafscale.storage.objects import ObjectStore

from e2e.checkers.history import History
from e2e.harness.inside import Inside, changed_in_store, watching_objects
from e2e.harness.load import Load, read_everything
from e2e.harness.services import NotYet, until

GOING_ON_S = 90.0
SECOND_TRY = "TWO_TRIES_CACHE"
"""The variable that names the folder in which `tools/two_tries.sh` keeps what failed."""


def keep(broken: Sequence[str], story: str = "") -> None:
    """Fails the test if a law is broken: `broken` has a sentence for each case. Such a test gets no second try."""
    if not broken:
        return
    if folder := os.environ.get(SECOND_TRY):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "broken-law").touch()
    raise AssertionError("\n".join([f"{len(broken)} laws are broken", *broken[:20], story]))


def keep_in_group(broken: Sequence[str], story: str) -> None:
    """As `keep`, but for a partition that had no member for too long: a machine that stalls can do that."""
    keep([law for law in broken if not law.startswith("gap:")], story)
    assert not broken, "\n".join([*broken[:20], story])


class System(Protocol):
    """What is under test: where clients connect, its etcd and its bucket."""

    @property
    def bootstrap(self) -> str: ...

    def inside(self) -> Inside: ...

    def open_store(self) -> ObjectStore: ...


@contextmanager
def under_load(system: System, topic: str, partitions: int) -> Iterator[Load]:
    """Two idempotent producers and a plain one write to every partition before, during and after.

    No error reaches them, all records are acknowledged in the end, nothing acknowledged is lost, nothing is there
    twice or out of order for the idempotent ones. No committed object changed its etag, and none is gone, except for
    bundles that no head names any more.
    """
    load = Load(system.bootstrap, topic, partitions, History())
    load.start("idempotent0", idempotent=True)
    load.start("idempotent1", idempotent=True)
    load.start("plain0", idempotent=False)
    try:
        goes_on(load)
        with watching_objects(system.inside(), topic) as watched:
            yield load
            goes_on(load)
    finally:
        load.stop()
    assert load.errors == []
    assert len(load.history.acknowledged) == len(load.history.sent)
    log = read_everything(system.bootstrap, topic, partitions)
    keep(load.history.violations(log))
    assert watched.seen, "no committed object was seen"
    assert watched.changed == []
    inside = system.inside()
    assert changed_in_store(system.open_store, watched.seen, lambda: inside.committed(topic)) == []


def goes_on(load: Load) -> None:
    """Waits until every producer has a record acknowledged on every partition that it had not before."""
    before = load.going_on()
    pairs = [(name, part) for name in load.names() for part in range(load.partitions)]

    def stuck() -> list[tuple[str, int]]:
        assert load.errors == []
        now = load.going_on()
        return [pair for pair in pairs if now.get(pair, 0) <= before.get(pair, 0)]

    try:
        until("every producer goes on on every partition", lambda: not stuck(), GOING_ON_S)
    except NotYet as late:
        raise NotYet(f"{late}; those that do not: {stuck()}") from None


def nap(seconds: float) -> None:
    """How long a fault lasts is what the scenario says; nothing is awaited by it."""
    threading.Event().wait(seconds)
