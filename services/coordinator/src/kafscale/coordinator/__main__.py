"""Runs the coordinator service: `python -m kafscale.coordinator`."""

import sys

from kafscale.coordinator.server import build
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.runtime.process import run_service


def main() -> int:
    return run_service("coordinator", CoordinatorSettings, build)


if __name__ == "__main__":
    sys.exit(main())
