"""The results of runs, as plain values for JSON. Results of runs over different topics can be merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.retention.apply import Report
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import OrphanReport

ORPHANS: Final = pa.schema({"topic": pa.string(), "object": pa.string(), "bytes": pa.int64()})


def report_to_json(report: Report) -> dict[str, Any]:
    return {**asdict(report), "fates": {fate.value: report.fates[fate] for fate in Fate}}


def report_from_json(values: Mapping[str, Any]) -> Report:
    """Undoes `report_to_json`."""
    fates = Counter({Fate(name): count for name, count in values["fates"].items()})
    return Report(**{**values, "fates": fates})


def merge_reports(reports: Iterable[Report]) -> Report:
    whole = Report()
    for report in reports:
        whole.logs += report.logs
        whole.moved += report.moved
        whole.segments += report.segments
        whole.bytes += report.bytes
        whole.fates.update(report.fates)
        whole.missed |= report.missed
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSummary:
    """What a collection of orphans found and did; for the rows of `orphans`, the first of the `count`, see ORPHANS."""

    partitions: int = 0
    count: int = 0
    orphans: list[dict[str, Any]] = field(default_factory=list)
    bytes: int = 0
    left: int = 0
    strange: int = 0
    failed: int = 0  # objects that should be gone and are not
    missed: dict[str, str] = field(default_factory=dict)


def summarize_orphans(found: OrphanReport) -> OrphanSummary:
    return OrphanSummary(
        partitions=found.partitions,
        count=found.count,
        orphans=[
            {"topic": each.topic.name, "object": each.key, "bytes": each.size} for each in found.orphans
        ],
        bytes=found.bytes,
        left=found.left,
        strange=found.strange,
        failed=sum(count for fate, count in found.fates.items() if not fate.is_over),
        missed=dict(found.missed),
    )


def merge_orphan_summaries(some: Iterable[OrphanSummary]) -> OrphanSummary:
    each = list(some)
    return OrphanSummary(
        partitions=sum(one.partitions for one in each),
        count=sum(one.count for one in each),
        orphans=sorted((row for one in each for row in one.orphans), key=lambda row: row["object"]),
        bytes=sum(one.bytes for one in each),
        left=sum(one.left for one in each),
        strange=sum(one.strange for one in each),
        failed=sum(one.failed for one in each),
        missed={place: why for one in each for place, why in one.missed.items()},
    )
