"""Which stored pieces of a partition are its log. Pure.

The bucket does not show which objects were committed. docs/protocol/commit.md leaves few answers:

- **A later epoch ends all earlier ones.** Its writer began at the high watermark, so an older epoch committed nothing
  at or above the first offset of a later one, and everything below it.
- **An offset of an epoch has one sequence of bytes**, in a slice, in a segment and in what repeats or settles them. So
  pieces of one epoch may be exchanged. Compacted segments keep their offsets and lose records, so the chain with the
  fewest bytes is the one that is compacted most.
- **Commits follow the order of the log.** What lies behind a gap was not committed, unless something proves it. If
  it was, the records of the gap are gone, and the log goes on behind it.

So each acknowledged record that is stored is in the chain, and its end is never below the high watermark. The newest
epoch may also have stored records that it never acknowledged. Nothing distinguishes them from acknowledged ones, so the
chain takes them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafscale.log.heads import EpochStart, Seg

_FAR: Final = 1 << 63
"""No offset is as high."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stored segment or slice. `committed`: something proves that its records were acknowledged.

    `told`: `seg` is the commit record itself, and not made from the bytes. `plain`: it has no batch of a transaction.
    """

    seg: Seg
    committed: bool
    told: bool = False
    plain: bool = False


class Span(NamedTuple):
    """Offsets [first, end)."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first}-{self.end - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A log of offsets [start, end): `segs` in order, and the `gaps` between and behind them.

    Offsets in a gap were acknowledged, and nothing is stored of them: retention deleted them, or they are lost.
    `left_out`: stored offsets at or above the log start that no part of the log covers.
    """

    segs: tuple[Seg, ...]
    start: int
    end: int
    gaps: tuple[Span, ...] = ()
    left_out: tuple[Span, ...] = ()


def chain_of(
    pieces: Iterable[Piece], *, epochs: Iterable[EpochStart], committed_end: int, log_start: int
) -> Chain:
    """`epochs`: what else is known of leader epochs. All offsets below `committed_end` were acknowledged. Records below
    `log_start` are deleted: a gap there is none."""
    standing = within_their_epochs(list(pieces), epochs)
    reach = _reached(standing)
    proven = max(committed_end, _followed_end(standing))
    if all(way.origin > proven for way in reach.values()):  # what was before it is deleted
        proven = min((way.origin for way in reach.values()), default=proven)
    ends = sorted(reach)
    segs: list[Seg] = []
    gaps: list[Span] = []
    end = max((end for end, way in reach.items() if way.origin <= proven), default=committed_end)
    start = log_end = max(end, committed_end)
    while end in reach and end > log_start:
        if end < start:
            gaps.append(Span(end, start))
        segs += reversed(_way_to(end, reach))
        start = reach[end].origin
        below = bisect_right(ends, start) - 1
        end = ends[below] if below >= 0 else -1
    left_out = _outside(standing, [*gaps, Span(log_end, _FAR)], log_start)
    return Chain(
        segs=tuple(reversed(segs)),
        start=start,
        end=log_end,
        gaps=tuple(reversed(gaps)),
        left_out=left_out,
    )


def _followed_end(pieces: Sequence[Piece]) -> int:
    """The last offset at which a piece of a later epoch follows one of an earlier epoch.

    A later epoch begins at the high watermark, so what ends there was acknowledged. If a writer died with objects on
    their way, two unacknowledged pieces may look like that by chance; so this decides only between sides of a gap.
    """
    ends: dict[int, int] = {}
    for piece in pieces:
        ends[piece.seg.end] = min(piece.seg.epoch, ends.get(piece.seg.end, piece.seg.epoch))
    return max(
        (piece.seg.base for piece in pieces if ends.get(piece.seg.base, math.inf) < piece.seg.epoch),
        default=0,
    )


def within_their_epochs(pieces: Sequence[Piece], epochs: Iterable[EpochStart]) -> list[Piece]:
    """Without those that reach into a later epoch: their epoch's writer cannot have committed them."""
    first: dict[int, int] = {}
    known = [(start.epoch, start.start) for start in epochs]
    for epoch, base in (*known, *((piece.seg.epoch, piece.seg.base) for piece in pieces)):
        first[epoch] = min(base, first.get(epoch, base))
    limits: dict[int, float] = {}
    limit = math.inf
    for epoch in sorted(first, reverse=True):
        limits[epoch] = limit
        limit = min(limit, first[epoch])
    return [piece for piece in pieces if piece.seg.end <= limits[piece.seg.epoch]]


class _Way(NamedTuple):
    """The best chain to an offset. The order of the fields is the preference: a chain from farther back, with fewer
    bytes, with fewer slices, of pieces that were committed for certain."""

    origin: int
    size: int
    slices: int
    doubtful: int
    etag: str
    piece: Piece


def _reached(pieces: Sequence[Piece]) -> dict[int, _Way]:
    """For each offset at which a piece ends, the best chain that ends there."""
    reach: dict[int, _Way] = {}
    for piece in sorted(pieces, key=lambda piece: piece.seg.base):  # chains to its base are complete by then
        seg = piece.seg
        before = reach.get(seg.base)
        way = _Way(
            origin=seg.base if before is None else before.origin,
            size=seg.size + (0 if before is None else before.size),
            slices=seg.is_slice + (0 if before is None else before.slices),
            doubtful=(not piece.committed) + (0 if before is None else before.doubtful),
            etag=seg.etag,
            piece=piece,
        )
        known = reach.get(seg.end)
        if known is None or way[:-1] < known[:-1]:
            reach[seg.end] = way
    return reach


def _way_to(end: int, reach: dict[int, _Way]) -> tuple[Seg, ...]:
    segs: list[Seg] = []
    while (way := reach.get(end)) is not None:
        segs.append(way.piece.seg)
        end = way.piece.seg.base
    return tuple(reversed(segs))


def _outside(pieces: Sequence[Piece], places: Iterable[Span], log_start: int) -> tuple[Span, ...]:
    """The offsets of pieces in these places."""
    found = [
        Span(max(piece.seg.base, place.first), min(piece.seg.end, place.end))
        for place in places
        for piece in pieces
        if piece.seg.base < place.end and piece.seg.end > place.first
    ]
    return joined(span for span in found if span.end > log_start)


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """In order, those that touch or overlap as one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].end:
            found[-1] = Span(found[-1].first, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)
