"""Writes observe/grafana/dashboards/*.json from the rows in tools/dashboards."""

import json
import sys

from tools.dashboards.boards import FETCH, FRONTDOOR, OVERVIEW
from tools.dashboards.group_boards import GROUPS, UPKEEP
from tools.dashboards.panels import document
from tools.dashboards.produce_board import PRODUCE
from tools.generated import ROOT, write_or_check

FOLDER = ROOT / "observe" / "grafana" / "dashboards"
BOARDS = (OVERVIEW, FRONTDOOR, PRODUCE, FETCH, GROUPS, UPKEEP)


def main() -> int:
    files = {FOLDER / f"{board.uid}.json": json.dumps(document(board), indent=1) + "\n" for board in BOARDS}
    return write_or_check(files, FOLDER.glob("*.json"))


if __name__ == "__main__":
    sys.exit(main())
