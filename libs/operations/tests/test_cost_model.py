"""What `kafscale cost` computes agrees with the rules and the settings of the produce service."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from math import exp
from random import Random
from typing import Any

import pytest
from kafscale.operations.cost.load import MONTH_S, Load, Prices, Requests, Tuning, bill
from kafscale.operations.cost.model import (
    OBJECTS_PER_CHECKPOINT,
    SEGMENTS_PER_CHECKPOINT,
    bundles_per_s,
    reads_of_slices_per_s,
    requests_of,
    settled_run,
    slices_per_s,
)
from kafscale.operations.cost.settling import Limit, Partition, Run, Slices, mean_run
from kafscale.produce.log.settling import KeptBudget
from kafscale.produce.settings import BUNDLES_PER_S, ProduceSettings

from .cost_world import Bundles
from .settling_world import settled

TUNING = Tuning()


def load(rate_mb: float, partitions: int, instances: int = 1, **more: Any) -> Load:
    return Load(bytes_per_s=rate_mb * 1e6, partitions=partitions, instances=instances, **more)


def test_the_defaults_are_those_of_the_service_on_s3() -> None:
    found = {name: field.default for name, field in ProduceSettings.model_fields.items()}
    assert (
        Tuning(
            bundles_per_s=BUNDLES_PER_S,
            head_commits_per_s=found["head_commits_per_s"],
            segment_bytes=found["segment_bytes"],
            bundle_direct_bytes=found["bundle_direct_bytes"],
            settle_keep_bytes=found["settle_keep_bytes"],
            settle_ms=found["settle_ms"],
            bundle_grace_ms=found["bundle_grace_ms"],
            linger_ms=found["produce_linger_ms"],
        )
        == TUNING
    )


# --- against the service's own rules ---------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "records_per_s", "changes"),
    [
        pytest.param(1, 10, {}, id="as records arrive"),
        pytest.param(10, 100, {}, id="as commits return"),
        pytest.param(333, 1, {}, id="at the budget of bundles"),
        pytest.param(1_000, 1, {}, id="many partitions"),
        pytest.param(1_000, 1, {"bundles_per_s": 4}, id="few bundles"),
        pytest.param(500, 10, {"head_commits_per_s": 500}, id="at the budget of heads"),
        pytest.param(1_000, 1, {"flush_ms": 155}, id="a slow store"),
        pytest.param(1_000, 0.1, {"flush_ms": 184}, id="a slow store and few records"),
        pytest.param(10, 100, {"flush_ms": 111}, id="a slow store and busy partitions"),
        pytest.param(10, 20, {"flush_ms": 35}, id="no bundle passes a partition in flight"),
        pytest.param(10, 20, {"flush_ms": 66}, id="a bundle passes a partition in flight"),
        pytest.param(100, 10, {"flush_ms": 100}, id="two bundles pass a partition in flight"),
        pytest.param(10, 100, {"bundles_per_s": 7, "flush_ms": 100}, id="each bundle waits for its token"),
    ],
)
def test_bundles_and_slices_are_as_many_as_gathering_seals(
    partitions: int, records_per_s: float, changes: dict[str, int]
) -> None:
    tuning = replace(TUNING, **changes)
    bundles, slices = Bundles(partitions, records_per_s, 1_000, tuning).per_s(5, 10)
    of_load = load(records_per_s * partitions / 1000, partitions)
    assert bundles_per_s(of_load, tuning) == pytest.approx(bundles, rel=0.12)
    assert slices_per_s(of_load, tuning) == pytest.approx(slices, rel=0.12)


# --- settling --------------------------------------------------------------------------------


MIDDLE = 0x7FFF
"""The mark of a slice that is settled in the middle of the times at which slices may be."""


def run_of(slice_bytes: int, per_s: float = 10, *, remembers: bool = True) -> Run:
    """Of equal slices. Without a memory, each slice is forgotten as soon as it is written."""
    limit = Limit(segment_bytes=4 << 20, settle_s=900, kept_bytes=1 << 30 if remembers else 0)
    partition = Partition(KeptBudget(int(limit.kept_bytes)), limit)
    for now_s in (number / per_s for number in count()):
        partition.write(slice_bytes, now_s, MIDDLE)
        if partition.is_full or now_s + 1 / per_s >= partition.due_s:
            break
    return partition.settled(min(now_s + 1 / per_s, partition.due_s))


def test_a_run_ends_when_its_segment_is_full() -> None:
    run = run_of(1_000_000)  # too large to fold
    assert (run.entries, run.bytes, run.entries_read) == (4, 4_000_000, 0)


def test_a_run_ends_at_its_age() -> None:
    run = run_of(1_000, 0.1)
    assert (run.seconds, run.bytes) == (pytest.approx(900, abs=0.01), 90_000)


def test_a_run_ends_when_the_tail_is_long_and_all_of_it_is_read_if_nothing_is_kept() -> None:
    run = run_of(1_000, remembers=False)
    assert (run.entries, run.entries_read, run.written_bytes) == (24, 24, 24_000)


def test_folding_keeps_tails_short_and_writes_more() -> None:
    run = run_of(5_000)
    assert run.entries < 24
    assert run.entries_read == 0
    assert 3 < run.written_bytes / run.bytes < 6


def test_memory_for_batches_saves_reads() -> None:
    little, much = replace(TUNING, settle_keep_bytes=1 << 20), replace(TUNING, settle_keep_bytes=1 << 30)
    of_load = load(1, 1_000)
    slices = slices_per_s(of_load, TUNING)
    assert settled_run(of_load, much, slices).entries_read == 0
    assert settled_run(of_load, little, slices).entries_read > 10


@pytest.mark.parametrize(
    ("memory_mb", "settle_s"),
    [(4, 300), (20, 300), (4, 900)],
    ids=["memory for a part", "memory for all", "a long time"],
)
def test_settling_reads_what_many_partitions_that_share_memory_have_forgotten(
    memory_mb: float, settle_s: int
) -> None:
    partitions, records_per_s = 60, 60
    tuning = replace(TUNING, settle_keep_bytes=int(memory_mb * 1e6), settle_ms=settle_s * 1000)
    found = settled(partitions, records_per_s, 10, tuning, periods=6)
    per_s = found["runs"] / (found["ms"] / 1000)
    slices = partitions * 10 * (1 - exp(-records_per_s / partitions / 10))
    run = settled_run(load(records_per_s / 1000, partitions), tuning, slices)
    assert records_per_s * 1_000 / run.bytes == pytest.approx(per_s, rel=0.08)
    assert run.entries == pytest.approx(found["slices"] / found["runs"], rel=0.08)
    assert run.entries_read == pytest.approx(found["read"] / found["runs"], rel=0.1, abs=0.4)


def test_settling_reads_of_a_thousand_partitions_with_large_records() -> None:
    """With the memory of 40 of them, a fold would fill a fifth of it."""
    partitions, per_s, record_bytes = 1_000, 200, 50_000
    tuning = replace(TUNING, settle_ms=120_000)
    found = settled(partitions, per_s, 20, tuning, periods=3, record_bytes=record_bytes)
    of_load = load(per_s * record_bytes / 1e6, partitions, record_bytes=record_bytes)
    run = settled_run(of_load, tuning, slices_per_s(of_load, tuning))
    assert run.entries == pytest.approx(found["slices"] / found["runs"], rel=0.12)
    assert run.entries_read == pytest.approx(found["read"] / found["runs"], rel=0.15)


def test_settling_in_time_leaves_memory_for_other_partitions() -> None:
    """40 s pass between two slices of a partition. A run that waited for the next one would keep its batches so long,
    and settling would read a fifth fewer."""
    partitions, per_s, record_bytes = 320, 8, 4_000
    tuning = replace(TUNING, settle_ms=600_000, settle_keep_bytes=6_500_000)
    found = settled(partitions, per_s, 8, tuning, periods=5, record_bytes=record_bytes)
    slices = Slices(record_bytes=record_bytes, bytes=record_bytes, per_s=per_s / partitions)
    limit = Limit(segment_bytes=tuning.segment_bytes, settle_s=600, kept_bytes=tuning.settle_keep_bytes)
    run = mean_run(slices, limit, partitions)
    assert run.bytes == pytest.approx(per_s * record_bytes * found["ms"] / 1000 / found["runs"], rel=0.03)
    assert run.entries_read == pytest.approx(found["read"] / found["runs"], rel=0.06)


def test_random_slices_have_the_mean_that_is_given() -> None:
    for mean in (1, 1.3, 4, 60):
        sizes = Slices(record_bytes=100, bytes=100 * mean, per_s=1).sizes(Random(1))
        found = [next(sizes) for _ in range(4_000)]
        assert sum(found) / len(found) == pytest.approx(100 * mean, rel=0.03)
        assert min(found) >= 100


# --- the sums --------------------------------------------------------------------------------


def test_a_partition_with_many_bytes_writes_segments_of_its_own() -> None:
    """Of as many whole records as reach the bound."""
    requests = requests_of(load(60, 1), TUNING)
    segments = 60e6 / 1_049_000
    assert requests.head_commits == pytest.approx(segments * 18 / 17)
    assert requests.puts == pytest.approx(segments * (2 + OBJECTS_PER_CHECKPOINT / SEGMENTS_PER_CHECKPOINT))
    assert requests.redundant_bytes == 0
    larger = requests_of(load(60, 1), replace(TUNING, bundle_direct_bytes=2 << 20))
    assert larger.head_commits == pytest.approx(requests.head_commits / 2, rel=0.01)


def test_without_bundles_each_request_is_a_segment() -> None:
    requests = requests_of(load(1, 10), replace(TUNING, bundle_direct_bytes=1))
    assert requests.head_commits == pytest.approx(1_000 * 18 / 17)


def test_each_kind_of_request_of_bundles_is_counted() -> None:
    of_load, grace_s = load(1, 10), TUNING.bundle_grace_ms / 1000
    slices = slices_per_s(of_load, TUNING)
    run = settled_run(of_load, TUNING, slices)
    settles = 1e6 / run.bytes
    checkpoints = settles / (25 - run.entries)
    requests = requests_of(of_load, TUNING)
    bundles = bundles_per_s(of_load, TUNING)
    assert requests.puts == pytest.approx(bundles + 2 * settles + (2 + 1 / 31) * checkpoints)
    assert requests.gets == pytest.approx(bundles + 32 / 31 * checkpoints)
    assert requests.head_commits == pytest.approx(slices + settles + checkpoints)
    assert requests.deletes == requests.puts
    amplified = 1e6 * run.written_bytes / run.bytes
    assert requests.redundant_bytes == pytest.approx(amplified * (run.seconds + grace_s))


@pytest.mark.parametrize(("partitions", "instances"), [(10, 1), (1, 1), (10, 3), (1_000, 3)])
def test_a_bundle_is_read_once_because_one_fetch_instance_serves_all_of_it(
    partitions: int, instances: int
) -> None:
    of_load = load(1, partitions, instances)
    bundles = bundles_per_s(of_load, TUNING) * of_load.owners
    assert reads_of_slices_per_s(of_load, TUNING) == pytest.approx(bundles)


def test_slices_that_are_committed_by_several_requests_are_read_by_several() -> None:
    of_load, tuning = load(10, 10_000), replace(TUNING, head_commits_per_s=100_000, bundles_per_s=5)
    bundles = bundles_per_s(of_load, tuning)
    assert slices_per_s(of_load, tuning) / bundles > 500
    assert reads_of_slices_per_s(of_load, tuning) == pytest.approx(slices_per_s(of_load, tuning) / 100)


def test_no_slice_is_read_twice_by_one_consumer_however_few_there_are() -> None:
    of_load, tuning = load(1, 100, 3), replace(TUNING, head_commits_per_s=1)
    assert reads_of_slices_per_s(of_load, tuning) <= slices_per_s(of_load, tuning) + 1e-9


def test_without_consumers_only_merges_and_settling_read() -> None:
    requests = requests_of(load(1, 10, reads=0), TUNING)
    assert requests.gets is not None
    assert 0 < requests.gets < 0.1


def test_an_instance_without_a_partition_costs_nothing_but_has_its_share_of_the_budgets() -> None:
    two_fifths = replace(
        TUNING,
        bundles_per_s=TUNING.bundles_per_s * 2 // 5,
        head_commits_per_s=TUNING.head_commits_per_s * 2 // 5,
    )
    assert requests_of(load(1, 2, 2), two_fifths) == requests_of(load(1, 2, 5), TUNING)


@pytest.mark.parametrize("instances", [2, 5])
def test_more_instances_share_the_budgets(instances: int) -> None:
    of_load = load(10, 1_000, instances)
    assert bundles_per_s(of_load, TUNING) * instances <= TUNING.bundles_per_s + 1e-9
    assert slices_per_s(of_load, TUNING) <= TUNING.head_commits_per_s + 1e-9


def test_the_bill() -> None:
    requests = Requests(puts=10, gets=100, deletes=1_000, head_commits=5, redundant_bytes=2e12)
    found = bill(requests, Prices())
    assert found.puts == pytest.approx(10 * MONTH_S / 1e6 * 5)
    assert found.gets == pytest.approx(100 * MONTH_S / 1e6 * 0.4)
    assert found.store == 46
    assert found.total == pytest.approx(found.puts + 103.68 + 46), "a DELETE and a head commit are free"
    assert bill(replace(requests, gets=None), Prices()).total == pytest.approx(found.puts + 46)
