"""Runs the fetch service: `python -m kafscale.fetch`."""

import sys

from kafscale.fetch.server import ROLE, build
from kafscale.fetch.settings import FetchSettings
from kafscale.runtime.process import run_service


def main() -> int:
    return run_service(ROLE, FetchSettings, build)


if __name__ == "__main__":
    sys.exit(main())
