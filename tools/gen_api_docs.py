"""Writes docs/protocol/apis.md from the front door's table of routes."""

from __future__ import annotations

import sys

from kafscale.frontdoor.routes import ROWS, Row, Status

from tools.generated import ROOT, write_or_check

TARGET = ROOT / "docs" / "protocol" / "apis.md"
HEAD = """# What KafScale answers

Generated from `services/frontdoor/src/kafscale/frontdoor/routes.py` by `tools/gen_api_docs.py`; do not edit.

ApiVersions returns the same to every client. A served API shows its versions. Every other API shows -1/-1, so
a client sees at once that it is not supported. For a version outside the range of a served API, the answer is
UNSUPPORTED_VERSION (35) if it can be encoded in that version. Otherwise, and for an API that is not served, the
connection is closed. ApiVersions itself answers an unknown version with a body of version 0.
"""
SECTIONS = {
    Status.SERVED: (
        "Served",
        "| key | API | versions | answered by |\n|---|---|---|---|",
    ),
    Status.DEFERRED: (
        "Not yet",
        "| key | API | versions in Kafka 4.3 | comes with |\n|---|---|---|---|",
    ),
    Status.REFUSED: (
        "Never",
        "| key | API | versions in Kafka 4.3 | why |\n|---|---|---|---|",
    ),
}


def versions(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def cells(row: Row) -> list[str]:
    start = [str(int(row.key)), row.name, versions(row.version_min, row.version_max)]
    if row.status is not Status.SERVED:
        return [*start, row.why]
    return [*start, row.backend.value]


def page() -> str:
    parts = [HEAD]
    for status, (title, head) in SECTIONS.items():
        rows = ["| " + " | ".join(cells(row)) + " |" for row in ROWS if row.status is status]
        parts.append(f"## {title}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def main() -> int:
    return write_or_check({TARGET: page()})


if __name__ == "__main__":
    sys.exit(main())
