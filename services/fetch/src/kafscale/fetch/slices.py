"""The slices of bundles that the heads of held partitions name, and which of them one GET reads. Pure.

A bundle holds slices of many partitions, and one instance often reads several of them. One GET then reads all of them.
Only slices that a head names count. A slice that was settled or folded has left its head, and `LogTable` leaves out
partitions that nobody fetches here. So neither is read for nothing, unless it lies between two slices that are read.
"""

import bisect
from collections.abc import Collection, Hashable, Iterable
from operator import attrgetter
from typing import Final, Generic, TypeVar

from kafscale.log.heads import Seg

GAP_BYTES_MAX: Final = 256 << 10
"""Bytes between two slices that one GET reads without need. They take less time than another request."""
RUN_BYTES_MAX: Final = 8 << 20
"""Of one GET for several slices. A bundle has about 4 MiB."""
_position = attrgetter("position")
K = TypeVar("K", bound=Hashable)


class SliceIndex(Generic[K]):
    """By bundle and partition. As large as the tails of the held partitions."""

    def __init__(self) -> None:
        self._bundles: dict[bytes, dict[K, Seg]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._bundles.values()))

    def replace(self, key: K, before: Iterable[Seg], after: Iterable[Seg]) -> None:
        """The partition's tail was `before`, as this index knows it, and now is `after`."""
        for seg in before:
            if seg.is_slice:
                self._remove(key, seg)
        for seg in after:
            if seg.is_slice:
                self._bundles.setdefault(seg.bundle, {})[key] = seg

    def _remove(self, key: K, seg: Seg) -> None:
        of_bundle = self._bundles.get(seg.bundle, {})
        of_bundle.pop(key, None)
        if not of_bundle:
            self._bundles.pop(seg.bundle, None)

    def partitions(self, bundle: bytes) -> Collection[K]:
        """Those with a slice in it."""
        return self._bundles.get(bundle, {}).keys()

    def beside(self, seg: Seg) -> list[Seg]:
        """The slices of the same object, this one perhaps among them."""
        return [other for other in self._bundles.get(seg.bundle, {}).values() if other.etag == seg.etag]


def run_around(seg: Seg, others: Iterable[Seg]) -> list[Seg]:
    """The slices that one GET reads together with `seg`, in the order of their positions; `seg` is among them.

    A run grows from `seg` in both directions, up to a long gap or to RUN_BYTES_MAX.
    """
    by_position = sorted((other for other in others if other.position != seg.position), key=_position)
    at = bisect.bisect_left(by_position, seg.position, key=_position)
    run = [seg]
    for after in by_position[at:]:
        if not _joins(run[0], run[-1], run[-1], after):
            break
        run.append(after)
    for before in reversed(by_position[:at]):
        if not _joins(before, run[-1], before, run[0]):
            break
        run.insert(0, before)
    return run


def _joins(first: Seg, last: Seg, left: Seg, right: Seg) -> bool:
    """Whether two neighbours may be read together, and the run from `first` to `last` that they are in."""
    gap = right.position - (left.position + left.size)
    end = max(last.position + last.size, right.position + right.size)
    return 0 <= gap <= GAP_BYTES_MAX and end - first.position <= RUN_BYTES_MAX
