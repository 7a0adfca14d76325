"""Runs upkeep: `python -m kafscale.upkeep`."""

import sys

from kafscale.runtime.process import run_service
from kafscale.upkeep.service import ROLE, build
from kafscale.upkeep.settings import UpkeepSettings


def main() -> int:
    return run_service(ROLE, UpkeepSettings, build)


if __name__ == "__main__":
    sys.exit(main())
