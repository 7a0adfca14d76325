"""The checked-in schema is what the generator writes, and it covers what the product must speak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from kafscale.wire.schema import module_of

ROOT = Path(__file__).parents[3]
REQUIRED = {
    0: (0, 13),
    1: (0, 18),
    2: (0, 11),
    3: (0, 13),
    8: (0, 10),
    9: (0, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    19: (0, 7),
    20: (0, 6),
    22: (0, 5),
    23: (0, 4),
    32: (0, 4),
    33: (0, 2),
    37: (0, 3),
    42: (0, 2),
    44: (0, 1),
    47: (0, 0),
    68: (0, 1),
    69: (0, 1),
}


def test_the_schema_is_current() -> None:
    check = [sys.executable, "-m", "tools.gen_wire", "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("key", "versions"), REQUIRED.items())
def test_every_required_version_is_there(key: int, versions: tuple[int, int]) -> None:
    module = module_of(key)
    assert (versions, versions) == (module.REQUEST_VERSIONS, module.RESPONSE_VERSIONS)


def test_importing_the_package_imports_no_api() -> None:
    code = "import sys, kafscale.wire.schema; print([m for m in sys.modules if '.schema.' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
