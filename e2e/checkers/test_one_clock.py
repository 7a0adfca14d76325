"""`tools.one_clock` sees each way in which a module can ask the machine for time or randomness."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.one_clock import complaints


@pytest.mark.parametrize(
    "source",
    [
        "import time\nnow = time.monotonic()",
        "import time\nclock = time.time",
        "from time import perf_counter",
        "from time import time as wall_s",
        "import os\nkey = os.urandom(16)",
        "import uuid\nname = uuid.uuid4().hex",
        "import secrets\nsalt = secrets.token_bytes(8)",
        "import random\nsource = random.Random()",
        "import random\nport = random.choice([1])",
    ],
)
def test_a_module_that_asks_the_machine_is_named(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source)
    assert len(list(complaints(path))) == 1


def test_a_type_of_a_random_source_and_a_sleep_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import random\nimport time\ndef f(source: random.Random) -> None:\n    time.sleep(1)\n")
    assert not list(complaints(path))
