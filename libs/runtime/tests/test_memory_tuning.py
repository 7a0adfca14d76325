"""What a process does with memory that it has freed, and the settings of the garbage collector."""

import gc
import os
import subprocess
import sys

from kafscale.runtime.memory_tuning import MALLOC_ENV, YOUNG_OBJECTS_MAX, calm_collector

FLOOD = """
from pathlib import Path
from kafscale.runtime.memory_tuning import give_back

def held_mib():
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) >> 10

flood = [bytearray(1 << 20) for _ in range(300)]
flood.clear()
before = held_mib()
give_back()
print(before, held_mib())
"""


def test_what_a_flood_has_left_is_given_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FLOOD],
        env={**os.environ, **MALLOC_ENV},
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = map(int, done.stdout.split())
    assert before > 250, "glibc keeps it, as MALLOC_ENV says"
    assert after < 100


def test_grpc_knows_the_settings_of_its_version() -> None:
    """It prints a line for an experiment that it does not know, and then uses its default."""
    done = subprocess.run(
        [sys.executable, "-c", "import grpc; grpc.insecure_channel('127.0.0.1:1').close()"],
        env={**os.environ, **MALLOC_ENV},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_what_exists_is_not_looked_at_again_and_young_objects_seldom() -> None:
    threshold = gc.get_threshold()
    try:
        calm_collector()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
