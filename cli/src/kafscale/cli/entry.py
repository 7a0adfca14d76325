"""The entry point of `kafscale`.

Law: Ctrl-C ends the process in silence with exit code 130, unless the command has its own way to end. This holds
during the imports too, which take longer than the work of a short command. So this module imports only what the
interpreter has imported already: `signal` would import `enum`.
"""

import _signal as signal  # type: ignore[import-not-found]
import os
import sys

INTERRUPTED_EXIT_CODE = 130


def main() -> None:
    handler = signal.getsignal(signal.SIGINT)  # SIG_IGN for a background job of a script; it stays ignored
    if handler is signal.default_int_handler:
        # An exception could be swallowed, or replaced by an ImportError. Nothing was opened or printed yet.
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED_EXIT_CODE))
    from kafscale.cli.__main__ import main as command

    signal.signal(signal.SIGINT, handler)
    try:
        command()
    except KeyboardInterrupt:  # before or after the part of the command that typer guards
        sys.exit(INTERRUPTED_EXIT_CODE)
