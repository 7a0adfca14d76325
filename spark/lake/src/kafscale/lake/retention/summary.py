"""The results of runs, as plain values for JSON. Results of runs over different topics can be merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
from kafscale.lake.retention.apply import Report
from kafscale.lake.retention.deletes import Fate
from kafscale.lake.retention.orphans import OrphanReport

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result", bound="DataclassInstance")
ORPHANS: Final = pa.schema({"topic": pa.string(), "object": pa.string(), "bytes": pa.int64()})


def report_to_json(report: Report) -> dict[str, Any]:
    return {**asdict(report), "fates": {fate.value: report.fates[fate] for fate in Fate}}


def report_from_json(values: Mapping[str, Any]) -> Report:
    """Undoes `report_to_json`."""
    fates = Counter({Fate(name): count for name, count in values["fates"].items()})
    return Report(**{**values, "fates": fates})


def merged(empty: Result, some: Iterable[Result]) -> Result:
    """One result of the same class: numbers and counters add up, lists follow each other, dicts are joined."""
    whole = {each.name: getattr(empty, each.name) for each in fields(empty)}
    for one in some:
        for name, value in whole.items():
            more = getattr(one, name)
            whole[name] = value | more if type(value) is dict else value + more
    return replace(empty, **whole)


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
    whole = merged(OrphanSummary(), some)
    whole.orphans.sort(key=lambda row: row["object"])
    return whole
