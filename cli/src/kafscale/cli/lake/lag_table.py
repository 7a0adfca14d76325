"""The lag report on a terminal: colours for statuses, and the lag of a day as a line of bars."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from kafscale.cli.terminal import screen
from kafscale.runtime.redaction import harmless

if TYPE_CHECKING:
    from kafscale.lake.lag.report import GroupRow, PartitionRow, Report, TopicRow
    from rich.table import Table
    from rich.text import Text

COLOURS: Final = {
    "OK": "green",
    "WARN": "yellow",
    "STALL": "red",
    "STOP": "red",
    "REWIND": "magenta",
    "LOST": "bold magenta",
    "AHEAD": "bold magenta",
    "REPLACED": "bold magenta",
    "ERR": "red",
    "UNKNOWN": "dim",
}
BARS: Final = "▁▂▃▄▅▆▇█"
BAR_COUNT: Final = 16
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def show_report(report: Report, by: str, top: int | None, chosen: Collection[str] | None) -> None:
    """`chosen`: the groups that the caller asked for, which exist; None: all."""
    from kafscale.lake.lag.report import farthest
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    match by:
        case "group":
            _groups(table, farthest(report.groups, top), report)
        case "topic":
            _topics(table, farthest(report.topics, top))
        case _:
            _partitions(table, farthest(report.partitions, top), report)
    console = screen()
    if not table.row_count:
        console.print(_nothing(by, chosen))
        return
    console.print(table)
    if report.history_ms is None:
        console.print("there are no samples yet, so status, consume rate and ETA are unknown", style="dim")


def _nothing(by: str, chosen: Collection[str] | None) -> str:
    if by == "topic":
        return "there are no topics"
    if chosen is None:
        return "no group has a member or a committed offset"
    return f"no committed offset and no subscribed topic: {harmless(', '.join(sorted(chosen)))}"


def _partitions(table: Table, rows: Sequence[PartitionRow], report: Report) -> None:
    _columns(table, ("group", "topic"), ("part",), ("status",))
    _columns(
        table,
        (),
        ("lag", "stable lag", "stable end", "bytes", "behind", "out/s", "in/s", "eta", "expires"),
        ("risk", "owner", _span(report)),
    )
    for row in rows:
        table.add_row(
            _name(row.group),
            _name(row.topic),
            str(row.partition),
            _status(row.status) if row.committed is not None else _dim("no commit"),
            f"{row.records:,}",
            f"{row.stable_records:,}",
            f"{row.stable_end:,}",
            size(row.bytes),
            duration(row.time_ms),
            rate(row.consume_per_s),
            rate(row.produce_per_s),
            duration(row.eta_ms),
            expires(_soonest(row.expires_in_ms, row.expires_by_size_ms)),
            _risk(row.at_risk, row.lost, row.ahead),
            _name(f"{row.client}{row.host}" if row.member is not None else ""),
            bars(report.series.lines[row.place].tolist()) if row.place in report.series.lines else "",
        )


def _groups(table: Table, rows: Sequence[GroupRow], report: Report) -> None:
    _columns(table, ("group",), (), ("status", "life"))
    _columns(
        table,
        (),
        (
            "members",
            "parts",
            "no commit",
            "lag",
            "stable lag",
            "bytes",
            "behind",
            "skew",
            "trend/s",
            "expires",
        ),
        ("risk", _span(report)),
    )
    for row in rows:
        line = report.series.total(each.place for each in report.partitions if each.group == row.group)
        table.add_row(
            _name(row.group),
            _status(row.status),
            row.life,
            str(row.members),
            str(row.partitions),
            str(len(row.uncommitted) or ""),
            f"{row.records:,}",
            f"{row.stable_records:,}",
            size(row.bytes),
            duration(row.time_ms),
            rate(row.skew),
            rate(row.trend_1h_per_s),
            expires(row.expires_in_ms),
            _risk(row.at_risk > 0, row.lost),
            bars(line.tolist()),
        )


def _topics(table: Table, rows: Sequence[TopicRow]) -> None:
    _columns(table, ("topic",), ("parts", "groups"), ("slowest",))
    _columns(table, (), ("behind", "in/s", "bytes/s", "bytes/day", "stored", "retention", "head-room"), ())
    for row in rows:
        table.add_row(
            _name(row.topic),
            str(row.partitions),
            str(row.groups),
            _name(row.slowest_group or ""),
            duration(row.slowest_ms),
            rate(row.produce_per_s),
            size(round(row.produce_bytes_per_s)),
            size(row.bytes_per_day),
            size(row.bytes),
            duration(row.retention_ms),
            duration(row.head_room_ms),
        )


def _span(report: Report) -> str:
    """The heading of the column of bars: the time that they cover."""
    return duration(report.series.step_ms * (report.series.points - 1)) if report.series.points > 1 else "now"


def _columns(table: Table, names: Sequence[str], numbers: Sequence[str], others: Sequence[str]) -> None:
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for name in others:
        table.add_column(name)


def _name(name: str) -> Text:
    from rich.text import Text

    return Text(harmless(name))


def _status(status: str) -> Text:
    from rich.text import Text

    return Text(status, style=COLOURS[status])


def _dim(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="dim")


def _risk(at_risk: bool, lost: int, ahead: int = 0) -> Text:
    from rich.text import Text

    if ahead:
        return Text(f"ahead {ahead:,}", style="bold red")
    return Text(f"lost {lost:,}" if lost else "at risk" if at_risk else "", style="bold red")


def _soonest(*times_ms: int | None) -> int | None:
    return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)


def expires(time_ms: int | None) -> str:
    """Retention runs now and then, so a record that is past its time may go at any moment."""
    return "any time" if time_ms == 0 else duration(time_ms)


def duration(time_ms: int | None) -> str:
    """Two units at most: 3d 4h, 1m 5s, 0.3s."""
    if time_ms is None:
        return ""
    sign, left_s = "-" if time_ms < 0 else "", abs(time_ms) // 1000
    if left_s < 10:
        return f"{sign}{abs(time_ms) / 1000:.1f}s"
    parts: list[str] = []
    for unit_s, name in _UNITS:
        count, left_s = divmod(left_s, unit_s)
        if count or parts:
            parts.append(f"{count}{name}")
        if len(parts) == 2:
            break
    return sign + " ".join(part for part in parts if part[:-1] != "0")


def size(count: int) -> str:
    value = float(count)
    for unit in ("", "K", "M", "G", "T"):
        if value < 1_000:
            return f"{value:.0f}{unit}" if not unit or value >= 100 else f"{value:.1f}{unit}"
        value /= 1_000
    return f"{value:.1f}P"


def rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def bars(line: Sequence[int]) -> str:
    """The whole line, each column the largest of its share; a gap where nothing is known."""
    count = min(BAR_COUNT, len(line))
    shares = (line[at * len(line) // count : (at + 1) * len(line) // count] for at in range(count))
    tops = [max(some) for some in shares]
    highest = max(tops, default=0)
    if highest < 0:
        return ""
    return "".join(" " if top < 0 else BARS[top * (len(BARS) - 1) // max(1, highest)] for top in tops)
