"""A lag report as one page for people: it needs nothing but itself, and lets nothing in.

Group and topic names are what clients chose. They are in the page as JSON in which no character can end the element,
and the script shows them as text; a content security policy allows that script and that style sheet and nothing else,
no request to anywhere among it. Rows are columns of numbers and lines are a letter for each point, so that a
thousand partitions with history fit in a few hundred kilobytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.resources import files
from typing import Any, Final

import numpy as np
from kafscale.lake.lag.history import DAY_MS
from kafscale.lake.lag.owners import GroupPartition
from kafscale.lake.lag.rates import soonest
from kafscale.lake.lag.report import GroupRow, PartitionRow, Report, TopicRow
from kafscale.lake.lag.series import Line
from kafscale.lake.lag.status import Status

LEVELS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+"
UNKNOWN: Final = "."
LINE_POINTS: Final = 49
CHARTED: Final = 6
"""Groups in the chart: those with the highest peaks."""
SCRIPTS: Final = ("words", "chart", "tables", "groups", "page")
_WEB: Final = "web"
_FIELD: Final = re.compile(r"\{\{(\w+)\}\}")
_DANGEROUS: Final = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def render(report: Report) -> str:
    """The whole page, to be written as UTF-8."""
    folder = files(__package__) / _WEB
    style = folder.joinpath("page.css").read_text("utf-8")
    script = "".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    policy = [
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
    ]
    parts = {
        "style": style,
        "script": script,
        "policy": "; ".join(policy),
        "data": encoded(payload(report)).translate(_DANGEROUS),
    }
    return _FIELD.sub(lambda found: parts[found[1]], folder.joinpath("page.html").read_text("utf-8"))


def encoded(found: dict[str, Any]) -> str:
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def payload(report: Report) -> dict[str, Any]:
    """What the script reads. Times are seconds, but for `at`, `start`, `step` and `history`."""
    names = _Names()
    groups = {row.group: number for number, row in enumerate(report.groups)}
    return {
        "cluster": report.cluster,
        "at": report.at_ms,
        "history": report.history_ms,
        "start": report.series.start_ms,
        "step": report.series.step_ms,
        "points": report.series.points,
        "statuses": [status.value for status in Status],
        "groups": _groups(report),
        "topics": [_topic(row) for row in report.topics],
        "partitions": _partitions(report, groups, names),
        "names": names.listed,
    }


class _Names:
    """Each name once, in the order in which they came."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int | None:
        if name is None:
            return None
        if name not in self._numbers:
            self._numbers[name] = len(self.listed)
            self.listed.append(name)
        return self._numbers[name]


def _partitions(report: Report, groups: dict[str, int], names: _Names) -> dict[str, list[Any]]:
    rows = report.partitions
    numbers = {status: number for number, status in enumerate(Status)}
    nothing = np.full(report.series.points, -1)
    lines = [report.series.lines.get(row.place, nothing) for row in rows]
    return {
        "group": [groups[row.group] for row in rows],
        "topic": [names.number(row.topic) for row in rows],
        "partition": [row.partition for row in rows],
        "status": [numbers[row.status] for row in rows],
        "committed": [int(row.committed is not None) for row in rows],
        "records": [row.records for row in rows],
        "stable": [row.stable_records for row in rows],
        "stableEnd": [row.stable_end for row in rows],
        "bytes": [row.bytes for row in rows],
        "time": [_seconds(row.time_ms) for row in rows],
        "lost": [row.lost for row in rows],
        "ahead": [row.ahead for row in rows],
        "risk": [int(row.at_risk) for row in rows],
        "expires": [_seconds(_expires(row)) for row in rows],
        "eta": [_seconds(row.eta_ms) for row in rows],
        "consume": [_rounded(row.consume_per_s) for row in rows],
        "produce": [_rounded(row.produce_per_s) for row in rows],
        "member": [names.number(row.member) for row in rows],
        "client": [names.number(row.client) for row in rows],
        "host": [names.number(row.host) for row in rows],
        "line": [drawn(line) for line in lines],
        "peak": [max(0, int(line.max(initial=0))) for line in lines],
    }


def _expires(row: PartitionRow) -> int | None:
    return soonest(row.expires_in_ms, row.expires_by_size_ms)


def _groups(report: Report) -> list[dict[str, Any]]:
    places: dict[str, list[GroupPartition]] = {}
    for row in report.partitions:
        places.setdefault(row.group, []).append(row.place)
    lines = [report.series.total(places[row.group]) for row in report.groups]
    peaks = [max(0, int(line.max(initial=0))) for line in lines]
    charted = {
        number for number in sorted(range(len(lines)), key=peaks.__getitem__)[-CHARTED:] if peaks[number]
    }
    whole = report.series.points > 1 and report.history_ms is not None and report.history_ms >= DAY_MS
    return [
        {
            **_group(row),
            "peak": peaks[number],
            "line": drawn(lines[number]),
            "series": lines[number].tolist() if number in charted else None,
            "before": int(lines[number][0]) if whole and lines[number][0] >= 0 else None,
        }
        for number, row in enumerate(report.groups)
    ]


def _group(row: GroupRow) -> dict[str, Any]:
    return {
        "name": row.group,
        "status": row.status.value,
        "life": row.life.value,
        "members": row.members,
        "records": row.records,
        "time": _seconds(row.time_ms),
        "lost": row.lost,
        "risk": row.at_risk,
        "expires": _seconds(row.expires_in_ms),
        "skew": _rounded(row.skew),
        "trend": _rounded(row.trend_1h_per_s),
        "managed": row.managed,
        "unowned": len(row.unowned),
        "uncommitted": {
            "records": row.uncommitted_records,
            "expires": _seconds(row.uncommitted_expires_in_ms),
        },
    }


def _topic(row: TopicRow) -> dict[str, Any]:
    return {
        "name": row.topic,
        "partitions": row.partitions,
        "groups": row.groups,
        "slowest": row.slowest_group,
        "time": _seconds(row.slowest_ms),
        "produce": _rounded(row.produce_per_s),
        "day": row.bytes_per_day,
        "bytes": row.bytes,
        "retention": _seconds(row.retention_ms),
        "room": _seconds(row.head_room_ms),
    }


def drawn(line: Line) -> str:
    """A letter for each point, of as many levels as there are letters, the highest being the line's peak."""
    if not line.size:
        return ""
    chosen = line[np.linspace(0, line.size - 1, min(LINE_POINTS, line.size)).round().astype(int)]
    peak = max(1, int(line.max()))
    levels = np.round(chosen * (len(LEVELS) - 1) / peak).astype(int)
    return "".join(UNKNOWN if lag < 0 else LEVELS[level] for lag, level in zip(chosen, levels, strict=True))


def _seconds(time_ms: int | None) -> float | int | None:
    """Whole ones where a fraction says nothing."""
    if time_ms is None:
        return None
    return time_ms / 1000 if abs(time_ms) < 10_000 else round(time_ms / 1000)


def _rounded(value: float | None) -> float | None:
    """Three digits are enough for a person."""
    return None if value is None else float(f"{value:.3g}")
