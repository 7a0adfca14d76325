"""Requests to the object store for a load. Pure; rates are per second.

The formulas follow the rules of the produce service: `bundles/gather.py` (when an instance seals a bundle),
`log/plans.py` (checkpoints). Tests run these rules on a simulated clock and compare. `settling` here runs the service's
rules of folding and settling. Assumptions:

- Records have one size, arrive at random times, and are spread evenly over the partitions. Each arrives in a request of
  its own. So every partition writes all the time, which is the most expensive case for that rate.
- `Tuning.flush_ms` passes from a seal to its commit. No request fails, and no partition changes its owner.
- Consumers keep up, and there are as many fetch instances as owners, with the same node ids. So each serves the
  partitions of one owner. It reads a segment with one GET, and with one GET the slices of a bundle that one request to
  etcd commits. Each record is read `Load.reads` times. There is no shared cache.
- Producers are idempotent. So a checkpoint writes a producer snapshot and a manifest.
- Every object that is written is deleted later: bundles and snapshots soon, segments by retention.
- Not counted: what upkeep reads and lists, consumers that read old records, indexes that readers load.
"""

from __future__ import annotations

from math import ceil, exp
from typing import Final

from kafscale.log.manifests import MERGE_WIDTH
from kafscale.operations.cost.load import Load, Requests, Tuning
from kafscale.operations.cost.settling import Limit, Run, Slices, mean_run
from kafscale.produce.bundles.gather import GatherLimits
from kafscale.produce.log.model import Limits
from kafscale.runtime.committer import JOBS_PER_REQUEST_MAX

OBJECTS_PER_SEGMENT: Final = 2
"""`.kfs` and `.index`."""
MERGES: Final = 1 / (MERGE_WIDTH - 1)
"""Of manifests, for each checkpoint: MERGE_WIDTH of them become one, and MERGE_WIDTH of those."""
OBJECTS_PER_CHECKPOINT: Final = 2 + MERGES
"""Manifest and producer snapshot, and the share of a merged manifest."""
READS_PER_CHECKPOINT: Final = MERGE_WIDTH * MERGES
"""A merge reads what it merges."""
_LIMITS: Final = Limits()
SEGMENTS_PER_CHECKPOINT: Final = _LIMITS.checkpoint_at + 1 - _LIMITS.tail_keep
BUNDLE_BYTES: Final = GatherLimits().bundle_bytes
FREE_SHARE: Final = 0.52
BUSY_SHARE: Final = 1.5
ALL_BUSY: Final = 0.95
BUSY_POWER: Final = 6
"""From one seal to the next, as a share of a flush: FREE_SHARE if few partitions are in flight, BUSY_SHARE if ALL_BUSY
or more of them are. Between these the share rises late. Found by running the service's own rules."""
HELD_FROM: Final = 0.4
"""Bundles pass a partition in flight if a flush takes longer than this share of the time between two. Found likewise:
seals do not come at regular times, so it begins below 1."""


def requests_of(load: Load, tuning: Tuning) -> Requests:
    slices = slices_per_s(load, tuning)
    direct_bytes = min(tuning.segment_bytes, tuning.bundle_direct_bytes)
    if load.bytes_per_s / slices >= direct_bytes:  # such a buffer is sealed as a segment before its bundle
        return _of_segments(load, load.records_per_s / ceil(direct_bytes / load.record_bytes))
    run = settled_run(load, tuning, slices)
    settles = load.bytes_per_s / run.bytes
    in_tail = _LIMITS.checkpoint_at + 1 - run.entries
    checkpoints = settles / min(max(in_tail, 1), SEGMENTS_PER_CHECKPOINT)
    puts = (
        bundles_per_s(load, tuning) * load.owners
        + settles * OBJECTS_PER_SEGMENT
        + checkpoints * OBJECTS_PER_CHECKPOINT
    )
    written = load.bytes_per_s * run.written_bytes / run.bytes
    return Requests(
        puts=puts,
        gets=reads_of_slices_per_s(load, tuning) * load.reads
        + settles * run.entries_read
        + checkpoints * READS_PER_CHECKPOINT,
        deletes=puts,
        head_commits=slices + settles + checkpoints,
        redundant_bytes=written * (run.seconds + tuning.bundle_grace_ms / 1000),
    )


def _of_segments(load: Load, segments: float) -> Requests:
    """Each partition writes segments of its own, and nothing goes into bundles."""
    checkpoints = segments / SEGMENTS_PER_CHECKPOINT
    puts = segments * OBJECTS_PER_SEGMENT + checkpoints * OBJECTS_PER_CHECKPOINT
    return Requests(
        puts=puts,
        gets=segments * load.reads + checkpoints * READS_PER_CHECKPOINT,
        deletes=puts,
        head_commits=segments + checkpoints,
        redundant_bytes=0.0,
    )


# --- when time seals -------------------------------------------------------------------------


def _interval_s(records_per_s: float, least_s: float, tuning: Tuning) -> float:
    """The mean time between two seals: at least `least_s`, or the linger after the first record that comes later."""
    after_linger_s = max(0.0, least_s - tuning.linger_ms / 1000)
    return least_s + exp(-records_per_s * after_linger_s) / records_per_s


def bundles_per_s(load: Load, tuning: Tuning) -> float:
    """Of one instance. All instances share the budget."""
    arrivals = load.records_per_s / load.owners
    # A partition with a slice in flight waits. If all do, bundles follow one another. Else a bundle is sealed when as
    # many requests have come as the last one answered, and up to four are in flight.
    share = FREE_SHARE + (BUSY_SHARE - FREE_SHARE) * _one_by_one(load, tuning)
    by_time = 1 / _interval_s(arrivals, tuning.flush_s * share, tuning)
    return max(
        min(by_time, tuning.bundles_per_s / load.instances), load.bytes_per_s / load.owners / BUNDLE_BYTES
    )


def _one_by_one(load: Load, tuning: Tuning) -> float:
    """How far each bundle waits for the one before: 1 if all partitions are in flight, near 0 if half of them are."""
    records = load.records_per_s / load.partitions
    return min(1.0, (1 - exp(-records * tuning.flush_s)) / ALL_BUSY) ** BUSY_POWER


def slices_per_s(load: Load, tuning: Tuning) -> float:
    """Of all instances: the partitions that have records when a bundle is sealed, within the budget of head commits.

    A partition is not in the bundles that are sealed while its last slice is in flight. If bundles wait for one
    another, there are none.
    """
    bundles = bundles_per_s(load, tuning)
    records = load.records_per_s / load.partitions
    passing = max(0.0, tuning.flush_s * bundles - HELD_FROM) * (1 - _one_by_one(load, tuning) ** 2)
    least_s = (1 + passing) / bundles
    late_s = exp(-records * least_s) / (bundles * (1 - exp(-records / bundles)))
    in_each = max(1.0, load.partitions / load.owners / (bundles * (least_s + late_s)))
    return load.owners * min(bundles * in_each, tuning.head_commits_per_s / load.instances)


def reads_of_slices_per_s(load: Load, tuning: Tuning) -> float:
    """GETs of fetch instances that read each slice once, soon after its commit.

    Rendezvous hashing gives a fetch instance the partitions of the owner with the same node id. So a single instance
    reads what one request to etcd commits of a bundle.
    """
    slices = slices_per_s(load, tuning)
    in_each = slices / (bundles_per_s(load, tuning) * load.owners)
    together = min(in_each, JOBS_PER_REQUEST_MAX)  # a change wakes consumers, who then read
    return slices / max(together, 1.0)


def settled_run(load: Load, tuning: Tuning, slices: float) -> Run:
    """The partitions of an owner share its memory for batches."""
    of_each = Slices(
        record_bytes=load.record_bytes, bytes=load.bytes_per_s / slices, per_s=slices / load.partitions
    )
    limit = Limit(
        segment_bytes=tuning.segment_bytes,
        settle_s=tuning.settle_ms / 1000,
        kept_bytes=tuning.settle_keep_bytes,
    )
    return mean_run(of_each, limit, load.partitions / load.owners)
