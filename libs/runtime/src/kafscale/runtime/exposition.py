"""What /metrics answers, and the answer of several worker processes as if they were one.

Counters and histograms of workers are added up. A gauge means something only of one process: its
samples are kept apart by a `worker` label.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ADDED: Final = frozenset({"counter", "histogram", "summary"})


class _Fixed(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def expose(registry: CollectorRegistry) -> bytes:
    """Takes milliseconds: call it in a thread."""
    return generate_latest(registry)


def merge_expositions(texts: Mapping[str, bytes]) -> bytes:
    """One answer from the answers of workers, by the worker's name."""
    merged: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for worker, text in texts.items():
        for family in text_string_to_metric_families(text.decode()):
            if family.name not in merged:
                merged[family.name] = Metric(family.name, family.documentation, family.type)
                sums[family.name] = {}
            if family.type in _ADDED:
                for sample in family.samples:
                    key = (sample.name, tuple(sorted(sample.labels.items())))
                    sums[family.name][key] = sums[family.name].get(key, 0.0) + sample.value
            else:
                for sample in family.samples:
                    labels = {**sample.labels, "worker": worker}
                    merged[family.name].add_sample(sample.name, labels, sample.value)
    for name, rows in sums.items():
        for (sample_name, label_items), value in rows.items():
            merged[name].add_sample(sample_name, dict(label_items), value)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(ordered(merged.values())))
    return generate_latest(registry)


def ordered(families: Iterable[Metric]) -> Sequence[Metric]:
    return sorted(families, key=lambda family: family.name)
