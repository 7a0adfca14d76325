"""What a service tells Python's cyclic collector."""

import gc

from kafscale.runtime.gc_tuning import YOUNG_OBJECTS_MAX, calm_collector


def test_what_exists_is_not_looked_at_again_and_young_objects_seldom() -> None:
    threshold = gc.get_threshold()
    try:
        calm_collector()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
