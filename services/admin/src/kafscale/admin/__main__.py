"""Runs the admin service: `python -m kafscale.admin`."""

import sys

from kafscale.admin.server import build
from kafscale.admin.settings import AdminSettings
from kafscale.runtime.process import run_service


def main() -> int:
    return run_service("admin", AdminSettings, build)


if __name__ == "__main__":
    sys.exit(main())
