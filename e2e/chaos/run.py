"""A run: one fault after another, sometimes two at once, each mended and got over before the next.

Kinds come as cards from a shuffled pack, so each has its turn before any has its second. `chance` decides the order,
the victims and the moments; the processes are real, so the same seed is the same plan and not the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from e2e.chaos.faults import EVERYTHING, Fault, Struck, faults
from e2e.chaos.site import Site
from e2e.chaos.timeline import Happened, Timeline
from e2e.chaos.work import ORDERS, Work
from e2e.harness.deployment import ROLES
from e2e.harness.exactly_once import ALL, Copying
from e2e.harness.inside import bundles_in, changed_in_store, watching_objects
from e2e.harness.law import nap
from e2e.harness.services import NotYet, until

TWO_AT_ONCE: Final = 0.2
PAUSE_S: Final = (1.0, 4.0)
POLL_S: Final = 0.1
SAMPLE_S: Final = 5.0
WRONG_S: Final = (5.0, 15.0)
"""How long the processes go on in an older state of etcd."""
SWEEP_S: Final = 240.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Faults for `seconds`, and with `each_kind` until each of `kinds` has had its turn."""

    seed: int
    seconds: float
    instances: int = 2
    """Of each service."""
    each_kind: bool = False
    kinds: Sequence[Fault] = field(default_factory=lambda: faults(ORDERS))
    copies: Sequence[Copying] = ALL


@dataclass(slots=True)
class Run:
    """The verdict comes after the faults, and takes some minutes."""

    site: Site
    work: Work
    timeline: Timeline
    plan: Plan
    chance: Random
    say: Say
    _turns: int = 0
    _sampled_s: float = 0.0
    _under_way: list[tuple[float, Struck, Happened]] = field(default_factory=list)

    def go(self) -> None:
        """The answers of all clients are compared, also if a client stopped working."""
        inside = self.site.inside()
        self.work.create_topics()
        with watching_objects(inside, ORDERS) as watched, self._noted(), self.work.clients():
            self.work.goes_on()
            self._storm()
        self.timeline.counts = self.work.counts()
        self.say("all other clients have stopped; what they were told is compared")
        self.timeline.violations += [f"changed object: {name}" for name in watched.changed]
        self.work.judge_others(inside)
        changed = changed_in_store(self.site.open_store, watched.seen, lambda: inside.committed(ORDERS))
        self.timeline.violations += [f"changed object: {name}" for name in changed]
        with self._noted():
            self._etcd_goes_back()
        self.work.judge_orders()
        self.timeline.counts["records acknowledged"] = self.work.counts()["records acknowledged"]
        self.timeline.counts |= self.site.met()
        self._at_rest()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """A client got an error, or nothing more: the block ends."""
        try:
            yield
        except (NotYet, AssertionError) as late:
            self.timeline.violations.append(f"unavailable: {late}")

    # -- faults ------------------------------------------------------------------------------------

    def _storm(self) -> None:
        end_s = self.work.now_s() + self.plan.seconds
        pack = self._cards()
        while self.work.now_s() < end_s or self._has_kinds_left():
            first = next(pack)
            self._strike(first)
            if first.part != EVERYTHING and self.chance.random() < TWO_AT_ONCE:
                second = next(card for card in pack if card.part not in (EVERYTHING, first.part))
                self._wait(self.chance.uniform(0.0, 3.0))
                self._strike(second)
            self._until_mended()
            self.work.goes_on()
            for fault in self.timeline.faults:
                fault.over_s = fault.over_s or self.work.now_s()
            self._wait(self.chance.uniform(*PAUSE_S))

    def _has_kinds_left(self) -> bool:
        return self.plan.each_kind and self._turns < len(self.plan.kinds)

    def _cards(self) -> Iterator[Fault]:
        pack = list(self.plan.kinds)
        while True:
            self.chance.shuffle(pack)
            yield from pack

    def _strike(self, fault: Fault) -> None:
        self._turns += 1
        begin_s = self.work.now_s()
        struck = fault.strike(self.site, self.chance)
        if struck is None:
            return
        happened = Happened(fault.kind, struck.words, begin_s)
        self.timeline.faults.append(happened)
        self.say(struck.words)
        self._under_way.append((begin_s + struck.seconds, struck, happened))

    def _until_mended(self) -> None:
        while self._under_way:
            self._wait(POLL_S)

    def _wait(self, seconds: float) -> None:
        """Time passes: faults end, counts are taken."""
        end_s = self.work.now_s() + seconds
        while True:
            now_s = self.work.now_s()
            for entry in [entry for entry in self._under_way if entry[0] <= now_s]:
                self._under_way.remove(entry)
                entry[1].mend()
                entry[2].end_s = self.work.now_s()
            if now_s - self._sampled_s >= SAMPLE_S:
                self._sampled_s = now_s
                self.timeline.samples.append((now_s, self.work.counts()))
            if now_s >= end_s:
                return
            nap(min(POLL_S, end_s - now_s))

    # -- the end -----------------------------------------------------------------------------------

    def _etcd_goes_back(self) -> None:
        """etcd is restored to an older state while everything runs, and is brought up to the bucket, as docs/backup.md
        says. Only the producers of ORDERS still work: offsets of groups and transactions go back with etcd."""
        self.site.keep_etcd()
        self.work.goes_on()
        happened = Happened(
            "etcd restored to an older state", "etcd is restored from its snapshot", self.work.now_s()
        )
        self.timeline.faults.append(happened)
        self.say(happened.words)
        self.site.return_etcd()
        nap(self.chance.uniform(*WRONG_S))  # nothing is to happen in it
        self.site.kill_services()
        code, said = self.site.fsck("--roll-forward", "--yes")
        if code or "GAP" in said:
            self.timeline.violations.append(f"roll-forward: exit {code}: {said[-2000:]}")
        self.site.start_services()
        self.work.goes_on()
        happened.end_s = happened.over_s = self.work.now_s()

    def _at_rest(self) -> None:
        """Every slice is settled, the sweep has left no bundle, and fsck finds etcd and the store in agreement."""
        inside = self.site.inside()
        try:
            until("what the gate held has arrived", lambda: not self.site.gate.holding, SWEEP_S)
            until("every slice is settled", lambda: inside.slices(ORDERS) == 0, SWEEP_S)
            until("no bundle is left", lambda: not bundles_in(self.site.open_store), SWEEP_S)
        except NotYet as late:
            self.timeline.violations.append(f"leftovers: {late}")
        code, said = self.site.fsck()
        if code:
            self.timeline.violations.append(f"fsck: exit {code}: {said[-2000:]}")


def chaos(folder: Path, plan: Plan, say: Say) -> Timeline:
    """One whole run in an empty folder. What breaks a law is in the timeline's violations."""
    timeline = Timeline(plan.seed)
    say("the clients are built, once")
    for copy in plan.copies:
        copy.command()
    site = Site(folder, dict.fromkeys(ROLES, plan.instances), plan.seed)
    began_s = time.monotonic()
    try:
        site.start()
        work = Work(site.bootstrap, folder, plan.seed, plan.copies, timeline, began_s)
        say(f"ready at {site.bootstrap}; faults for {plan.seconds:.0f} s")
        told = partial(_told, say, work)
        Run(site, work, timeline, plan, Random(plan.seed), told).go()
    finally:
        site.kill()
    return timeline


def _told(say: Say, work: Work, words: str) -> None:
    say(f"{work.now_s():7.1f} s  {words}")
