"""Writes observe/grafana/dashboards/*.json from the rows in tools/dashboards.

    python tools/gen_dashboards.py [--check]

--check writes nothing and ends with 1 when a file is not current, or is none of ours.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.dashboards.boards import FETCH, FRONTDOOR, OVERVIEW, PRODUCE  # noqa: E402
from tools.dashboards.group_boards import GROUPS, UPKEEP  # noqa: E402
from tools.dashboards.panels import document  # noqa: E402

FOLDER = ROOT / "observe" / "grafana" / "dashboards"
BOARDS = (OVERVIEW, FRONTDOOR, PRODUCE, FETCH, GROUPS, UPKEEP)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    files = {f"{board.uid}.json": json.dumps(document(board), indent=1) + "\n" for board in BOARDS}
    if parser.parse_args().check:
        found = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
        if found != files:
            print(f"{FOLDER.relative_to(ROOT)} is not current: run tools/gen_dashboards.py")
            return 1
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.json"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
