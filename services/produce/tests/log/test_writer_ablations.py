"""Each decision of the protocol is taken away once; the laws must notice.

Scripts show each flaw in a few moves, and that the sound protocol survives the same story. The
search finds most of them without a hint where to look.
"""

import pytest
from writer_clients import Violation
from writer_flaws import ABLATIONS, OWN_FLAWS
from writer_scripts import SCRIPTS
from writer_search import first_violation
from writer_world import World

FLAWS = ABLATIONS | OWN_FLAWS
NEEDS_A_LONG_SEARCH = {"EPOCH_RESTARTS", "TOPIC_DELETE_UNCOND", "ZOMBIE_GAP"}
QUICK_SEEDS = range(400)
DEEP_SEEDS = range(20_000)


def test_every_ablation_of_the_model_has_a_script() -> None:
    assert set(ABLATIONS) <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_sound_protocol_survives_the_story_of_each_flaw(name: str) -> None:
    SCRIPTS[name](World())


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_planted_flaw_is_caught_in_its_story(name: str) -> None:
    with pytest.raises((Violation, AssertionError)):
        SCRIPTS[name](FLAWS[name]())


@pytest.mark.parametrize("name", sorted(set(FLAWS) - NEEDS_A_LONG_SEARCH))
def test_a_planted_flaw_is_found_by_searching(name: str) -> None:
    assert first_violation(lambda: FLAWS[name](3), QUICK_SEEDS) is not None


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(NEEDS_A_LONG_SEARCH))
def test_a_rare_flaw_is_found_by_a_long_search(name: str) -> None:
    assert first_violation(lambda: FLAWS[name](3), DEEP_SEEDS) is not None
