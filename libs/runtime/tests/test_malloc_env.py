"""What a process does with memory that it has freed."""

import os
import subprocess
import sys

from kafscale.runtime.malloc_env import MALLOC_ENV

FLOOD = """
from pathlib import Path
from kafscale.runtime.malloc_env import give_back

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
    assert before > 250, "glibc keeps it, as we have told it to"
    assert after < 100
