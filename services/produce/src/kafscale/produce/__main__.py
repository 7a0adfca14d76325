"""`python -m kafscale.produce`: one produce instance, until SIGTERM."""

from __future__ import annotations

import sys

from kafscale.produce.server import ROLE, build
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.process import run_service


def main() -> int:
    return run_service(ROLE, ProduceSettings, build)


if __name__ == "__main__":
    sys.exit(main())
