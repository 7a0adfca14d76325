"""Writes docs/metrics.md from the table of metrics (`kafscale.runtime.metric_table`)."""

import sys
from collections.abc import Iterable, Iterator

from kafscale.runtime.metric_table import CONSOLE, EVERY_PROCESS, EVERY_SERVICE, LAG, OWN, MetricRow
from kafscale.runtime.metrics import CHILDREN_MAX, OVERFLOW

from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "metrics.md"

INTRODUCTION = f"""\
# Metrics

Every service answers `GET /metrics` at its `KAFSCALE_HTTP_LISTEN` in Prometheus' text format.
[operations.md](operations.md) lists the metrics to look at first when something is wrong.

Names are `kafscale_<service>_<noun>_<unit>`; counters end in `_total`. A label `api` is Kafka's name of the request,
`code` its name of the error, `topic` the topic: its series end when it is deleted. A metric has at most
{CHILDREN_MAX:,} combinations of labels; further combinations are counted together as `{OVERFLOW}`. (Gauges of lag have
10,000 each, and `kafscale_upkeep_lag_left_out_series` counts the series beyond that.) Several worker processes of
one front door answer as one: counters and histograms are added up, gauges carry a `worker` label. Counting a request
takes less than a microsecond; reading a thousand topics at a scrape takes milliseconds.
Scrapers that ask at the same time share one text, and texts take at most a tenth of the process, so a scrape may
wait for up to a second. `/metrics` and `/readyz` answer a request whose `Host` is an address, a name without a dot, a
name below `.local`, `.internal`, `.svc`, `.localhost` or `.home.arpa`, or the host name that the process advertises.
Another name is refused (403), because a web page could have pointed it here.

This page is made from `libs/runtime/src/kafscale/runtime/metric_table.py` by `make gen`.
"""


def table(service: str, rows: Iterable[MetricRow]) -> Iterator[str]:
    yield "| metric | kind | labels | what it is |"
    yield "|---|---|---|---|"
    for row in sorted(rows, key=lambda row: row.name):
        labels = ", ".join(f"`{label}`" for label in row.labels)
        yield f"| `{row.exposed(service)}` | {row.kind} | {labels} | {row.text}. |"


def page() -> str:
    lines = [INTRODUCTION, "## Every service", "", *table("<service>", EVERY_SERVICE)]
    for service, rows in OWN.items():
        own = [row for row in rows if row not in LAG]
        if own:
            lines += ["", f"## {service}", "", *table(service, own)]
    lines += [
        "",
        "## Lag, at upkeep",
        "",
        "The names are those of kafka-lag-exporter; [lag.md](lag.md) describes the measurement. The values are",
        "those of the last sample, and disappear when it is old.",
        "",
        *table("upkeep", LAG),
        "",
        "## The console",
        "",
        "At `KAFSCALE_CONSOLE_HTTP_LISTEN`. A query by SQL is a request of the route `POST /sql`.",
        "",
        *table("console", CONSOLE),
        "",
        "## Every process",
        "",
        "From Prometheus' own client.",
        "",
        *table("", EVERY_PROCESS),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    return write_or_check({PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
