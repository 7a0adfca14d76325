"""The machine of a transactional id and the line of a group under arbitrary interleavings. See `transaction_world`.

Quick: some short histories that Hypothesis picks, and random walks by seed. Deep (`-m deep`): as many as there is time
for. Each planted flaw must be missed.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from transaction_flaws import FLAWS
from transaction_parts import SETTINGS, Setting
from transaction_shell import ShellWorld
from transaction_world import MOVES, TROUBLES, World, first_violation, walk

WALKS = 120
FLAW_SEEDS = range(500)
hows = st.integers(0, 1 << 30)


class TransactionMachine(RuleBasedStateMachine):
    """All moves of a world; the laws are judged after each, and at the end the id is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SETTINGS[0])

    @initialize(setting=st.sampled_from(SETTINGS))
    def begin(self, setting: Setting) -> None:
        self.world = World(setting)

    @rule(name=st.sampled_from(sorted(MOVES)), how=hows)
    def work(self, name: str, how: int) -> None:
        self.world.move(name, how)

    @rule(names=st.lists(st.sampled_from(sorted(MOVES)), min_size=5, max_size=20), how=hows)
    def work_for_a_while(self, names: list[str], how: int) -> None:
        for number, name in enumerate(names):
            self.world.move(name, how + number)

    @rule(name=st.sampled_from(sorted(TROUBLES)), how=hows)
    def trouble(self, name: str, how: int) -> None:
        self.world.move(name, how)

    def teardown(self) -> None:
        self.world.leave_alone()


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        TransactionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_the_laws_hold_in_short_histories() -> None:
    run(examples=60, steps=40)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_the_laws_hold_in_many_histories() -> None:
    run(examples=5_000, steps=60)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_laws_hold_on_random_walks(setting: Setting) -> None:
    assert first_violation(World, range(WALKS // len(SETTINGS)), [setting]) is None


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
async def test_the_laws_hold_with_the_real_registry_and_actors(setting: Setting) -> None:
    """They need a loop."""
    assert first_violation(ShellWorld, range(WALKS // len(SETTINGS)), [setting]) is None


@pytest.mark.deep
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
async def test_the_laws_hold_on_many_walks_with_the_real_registry_and_actors(setting: Setting) -> None:
    assert first_violation(ShellWorld, range(5_000), [setting]) is None


@pytest.mark.deep
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_the_laws_hold_on_many_random_walks(setting: Setting) -> None:
    assert first_violation(World, range(10_000), [setting]) is None


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_walks_reach_what_they_are_for(setting: Setting) -> None:
    """Without that the laws would hold of nothing."""
    told: list[bool] = []
    puts = markers = 0
    for seed in range(40):
        world = World(setting)
        walk(world, seed)
        told += world.told.values()
        markers += sum(len(log.markers) for log in world.logs.values())
        puts += sum(number is not None for _, number, _ in world.puts)
    assert True in told
    assert False in told
    assert min(markers, puts) > 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FLAWS)
def test_a_planted_flaw_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flaw = FLAWS[name]
    for module, what, instead in flaw.instead:
        monkeypatch.setattr(module, what, instead)
    assert first_violation(flaw.world, FLAW_SEEDS, flaw.settings, flaw.more) is not None
