"""`python -m kafscale.runtime.launch kafscale.produce`: runs a module that ends at SIGTERM from its first moment on.

As the first process of a container it would not be sent the signal before it handles it, and the imports of a service
take a second. A service that runs has its own handler.
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
