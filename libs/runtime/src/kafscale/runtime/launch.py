"""`python -m kafscale.runtime.launch kafscale.produce`: runs a module as the first process of a container.

Linux delivers no signal to that process unless the process handles it. Then Kubernetes would wait for the pod's whole
grace period, and kill the container. So SIGTERM ends the module, from its first import on, until the module has a
handler of its own, as a service has.
"""

import runpy
import signal
import sys
from types import FrameType
from typing import Final

STOPPED_EXIT_CODE: Final = 128 + signal.SIGTERM
"""As a shell reports a process that SIGTERM ended."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    sys.exit(STOPPED_EXIT_CODE)


def main() -> None:
    signal.signal(signal.SIGTERM, _stop)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
