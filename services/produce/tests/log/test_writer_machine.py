"""The partition writer under arbitrary interleavings: Hypothesis picks the moves, `writer_truth` judges.

Quick: some hundred short histories, the same in every run, and a few hundred random walks by seed.
Deep (`-m deep`): as many as there is time for.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from writer_clients import Violation
from writer_flaws import ABLATIONS
from writer_search import Walk
from writer_world import World

INSTANCES = 3
ABLATIONS_OF_THE_WRITER = (
    "UNCOND_PUT",
    "NO_FENCE",
    "AMBIG_FAIL",
    "NO_ETAG",
    "OVERWRITE_ANY",
    "ACK_UPLOADED",
)
instances = st.integers(0, INSTANCES - 1)
positions = st.integers(0, 30)


class WriterMachine(RuleBasedStateMachine):
    """All moves of a world; the laws are checked inside each, and at the end the world is healed."""

    world_type = World

    @initialize()
    def begin(self) -> None:
        self.world = self.world_type(INSTANCES)
        self.world.claim(0)

    def _serving(self, pick: int) -> int:
        """Of the instances that have a writer, if any."""
        serving = [n for n, owner in enumerate(self.world.serving) if owner is not None]
        return serving[pick % len(serving)] if serving else 0

    @rule(pick=instances, count=st.integers(1, 2))
    def send_plain(self, pick: int, count: int) -> None:
        self.world.send_plain(self._serving(pick), count)

    @rule(pick=instances, which=st.integers(0, 1), count=st.integers(1, 2))
    def send_idempotent(self, pick: int, which: int, count: int) -> None:
        self.world.send_idempotent(self._serving(pick), which, count=count)

    @precondition(lambda self: self.world.network)
    @rule(at=positions)
    def deliver(self, at: int) -> None:
        self.world.deliver(at % len(self.world.network))

    @precondition(lambda self: self.world.network)
    @rule(lose_answer=st.booleans())
    def deliver_the_newest(self, lose_answer: bool) -> None:
        self.world.deliver(len(self.world.network) - 1, lose_answer=lose_answer)

    @precondition(lambda self: self.world.network)
    @rule(count=positions)
    def deliver_the_oldest(self, count: int) -> None:
        for _ in range(min(count, len(self.world.network))):
            self.world.deliver(0)

    @precondition(lambda self: self.world.network)
    @rule(at=positions, how=st.sampled_from(("lose answer", "keep a copy", "stop waiting", "drop")))
    def mistreat_a_request(self, at: int, how: str) -> None:
        at %= len(self.world.network)
        match how:
            case "lose answer":
                self.world.deliver(at, lose_answer=True)
            case "keep a copy":
                self.world.deliver(at, keep=True)
            case "stop waiting":
                self.world.forget(at)
            case _:
                self.world.drop(at)

    @rule(elapsed_ms=st.sampled_from((0, 1, 60, 300, 2_000)))
    def time_passes(self, elapsed_ms: int) -> None:
        self.world.tick(elapsed_ms)

    @rule(instance=instances)
    def claim(self, instance: int) -> None:
        self.world.claim(instance)

    @rule(instance=instances, how=st.sampled_from(("crash", "pause", "resume", "resume", "hand over")))
    def trouble_an_instance(self, instance: int, how: str) -> None:
        move = {
            "crash": self.world.crash,
            "pause": self.world.pause,
            "resume": self.world.resume,
            "hand over": self.world.handoff,
        }[how]
        move(instance)

    @rule(instance=instances, fails=st.booleans())
    def checkpoint(self, instance: int, fails: bool) -> None:
        self.world.checkpoint(self._serving(instance), fails=fails)

    @rule(at=positions, what=st.sampled_from(("orphan", "orphan", "orphan", "meta", "connection", "topic")))
    def go_on_elsewhere(self, at: int, what: str) -> None:
        """The collector of orphans, an impatient producer, an administrator."""
        match what:
            case "orphan":
                self.world.janitor(at)
            case "meta":
                self.world.touch_meta()
            case "connection":
                self.world.lose_connection(at % 2)
            case _:
                self.world.recreate_topic()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.heal()


def run_machine(
    examples: int, steps: int, *, derandomize: bool, flaw: type[World] = World, shrink: bool = True
) -> None:
    class Planted(WriterMachine):
        world_type = flaw

    run_state_machine_as_test(
        Planted,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            phases=tuple(Phase) if shrink else (Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_interleaving_breaks_a_law() -> None:
    run_machine(60, 50, derandomize=True)


@pytest.mark.parametrize("name", ABLATIONS_OF_THE_WRITER)
def test_the_machine_itself_catches_each_ablation_of_the_writer(name: str) -> None:
    with pytest.raises((Violation, AssertionError)):
        run_machine(400, 50, derandomize=True, flaw=ABLATIONS[name], shrink=False)


def test_no_random_walk_breaks_a_law() -> None:
    for seed in range(300):
        Walk(World(2 + seed % 2), seed).run()


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_interleaving_breaks_a_law_in_a_long_search() -> None:
    run_machine(3_000, 120, derandomize=False)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_long_walk_breaks_a_law() -> None:
    for seed in range(20_000):
        Walk(World(2 + seed % 2), seed).run(steps=200)
