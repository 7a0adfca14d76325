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

FORKED = """
import ctypes, sys
from kafscale.runtime.memory_tuning import MALLOC_ENV, tune_allocator

class Info(ctypes.Structure):  # struct mallinfo2, of which the fourth field counts mappings
    _fields_ = [(f"field_{n}", ctypes.c_size_t) for n in range(10)]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info
if sys.argv[1] == "tuned":
    tune_allocator(MALLOC_ENV)
before = mallinfo2().field_3
large = [bytearray(1 << 20) for _ in range(20)]
print(mallinfo2().field_3 - before)
"""


def test_a_process_that_runs_is_tuned_as_one_that_starts_with_the_variables() -> None:
    """glibc then takes large objects from its heap, and makes no mapping for each."""
    plain = {name: value for name, value in os.environ.items() if name not in MALLOC_ENV}
    mappings = {
        (how, bool(env)): int(
            subprocess.run(
                [sys.executable, "-c", FORKED, how],
                env={**plain, **env},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for how, env in (("not", {}), ("not", MALLOC_ENV), ("tuned", {}))
    }
    assert mappings == {("not", False): 20, ("not", True): 0, ("tuned", False): 0}


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
