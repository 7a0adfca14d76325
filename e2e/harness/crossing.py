"""Starts one service and records which modules of the product it calls: `python -m e2e.harness.crossing MODULE`.

Law: the product has no hook for this. This launcher installs a profile function in the main thread and in every thread
that starts later, and then runs MODULE as `python -m MODULE` does. On each SIGUSR1 it writes the sorted names of the
modules that were called since the last SIGUSR1 to FOLDER/MODULE-N.json (N counts from 1) and forgets them. FOLDER is
the variable KAFSCALE_E2E_CROSSING. A module counts if one of its functions was called or resumed; one that only gives
constants and types does not.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = "KAFSCALE_E2E_CROSSING"
OURS = "kafscale."


class Crossing:
    """The modules called since the last report."""

    def __init__(self, folder: Path, module: str) -> None:
        self._folder = folder
        self._module = module
        self._called: set[str] = set()
        self._reports = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._called.add(frame.f_globals.get("__name__", ""))

    def report(self, *_: object) -> None:
        called, self._called = self._called, set()
        self._reports += 1
        done = self._folder / f"{self._module}-{self._reports}.json"
        begun = done.with_suffix(".begun")
        begun.write_text(json.dumps(sorted(name for name in called if name.startswith(OURS))))
        begun.rename(done)


def main() -> None:
    module = sys.argv[1]
    crossing = Crossing(Path(os.environ[FOLDER]), module)
    signal.signal(signal.SIGUSR1, crossing.report)
    sys.argv = sys.argv[1:]
    threading.setprofile(crossing.profile)
    sys.setprofile(crossing.profile)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
