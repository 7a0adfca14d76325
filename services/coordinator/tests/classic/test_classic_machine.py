"""The classic group under arbitrary interleavings: Hypothesis picks the moves, `classic_laws` judges.

Quick: some hundred short histories, the same in every run, and random walks by seed. Deep
(`-m deep`): as many as there is time for.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from services.coordinator.tests.classic.classic_world import INSTANCES, OFFERS, USUAL_OFFERS, World, walk

picks = st.integers(0, 9)
hows = st.integers(1, 60)
offers = st.one_of(st.integers(0, USUAL_OFFERS - 1), st.integers(0, len(OFFERS) - 1))
skews = st.sampled_from((0, 0, 0, 1, -1))


class ClassicGroupMachine(RuleBasedStateMachine):
    """All moves of a world; the laws are judged inside each, and at the end the group is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(offer=offers, how=hows)
    def newcomer(self, offer: int, how: int) -> None:
        self.world.newcomer(offer, how)

    @rule(which=st.integers(0, len(INSTANCES) - 1), offer=offers, how=hows)
    def static_process(self, which: int, offer: int, how: int) -> None:
        self.world.static_process(which, offer, how)

    @rule(pick=picks, offer=offers, how=hows)
    def take_up_id(self, pick: int, offer: int, how: int) -> None:
        self.world.take_up_id(pick, offer, how)

    @rule(pick=picks, offer=offers, how=hows)
    def rejoin(self, pick: int, offer: int, how: int) -> None:
        self.world.rejoin(pick, offer, how)

    @rule(pick=picks, how=hows, everyone=st.booleans())
    def rejoin_unchanged(self, pick: int, how: int, everyone: bool) -> None:
        if everyone:
            self.world.everyone_rejoins(how)
        else:
            self.world.rejoin_unchanged(pick, how)

    @rule(pick=picks, skew=skews, extra=st.integers(0, 11))
    def sync(self, pick: int, skew: int, extra: int) -> None:
        self.world.sync(pick, skew, extra)

    @rule(how=hows)
    def a_whole_round(self, how: int) -> None:
        self.world.a_whole_round(how)

    @rule(extra=st.integers(0, 11))
    def leader_syncs(self, extra: int) -> None:
        self.world.leader_syncs(extra)

    @rule(pick=picks, skew=skews, everyone=st.booleans())
    def heartbeat(self, pick: int, skew: int, everyone: bool) -> None:
        if everyone:
            self.world.everyone_heartbeats()
        else:
            self.world.heartbeat(pick, skew)

    @rule(pick=picks, skew=skews, how=st.integers(0, 11))
    def commit(self, pick: int, skew: int, how: int) -> None:
        self.world.commit(pick, skew, how)

    @rule(pick=picks, count=st.integers(1, 3), by_instance=st.booleans())
    def leave(self, pick: int, count: int, by_instance: bool) -> None:
        self.world.leave(pick, count, by_instance)

    @rule(pick=picks)
    def peer_vanishes(self, pick: int) -> None:
        self.world.vanish(pick)

    @rule(elapsed_ms=st.sampled_from((0, 1, 5, 9, 20, 60, 150)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.world.time_passes(elapsed_ms)

    @rule(what=st.sampled_from(("crash", "delete", "delay")), which=st.integers(0, 2))
    def somebody_intervenes(self, what: str, which: int) -> None:
        match what:
            case "crash":
                self.world.crash()
            case "delete":
                self.world.delete()
            case _:
                self.world.reconfigure(which)

    def teardown(self) -> None:
        self.world.judge.leave_alone()


def run_machine(examples: int, steps: int, *, derandomize: bool) -> None:
    run_state_machine_as_test(
        ClassicGroupMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_random_walk_breaks_a_law() -> None:
    for seed in range(250):
        walk(seed)


def test_no_interleaving_breaks_a_law() -> None:
    run_machine(60, 30, derandomize=True)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_interleaving_breaks_a_law_in_a_long_search() -> None:
    run_machine(2_000, 60, derandomize=False)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_long_walk_breaks_a_law() -> None:
    for seed in range(20_000):
        walk(seed, 150)
