"""etcd is lost: it goes back to a snapshot, and the roll-forward rebuilds the heads from the bucket.

Which objects are the log is decided by the product's own function (`cli.rollforward.chain`). Processes may run until
the roll-forward; it comes when they have ended and what they sent has reached the store. A witness lies behind the
snapshot, as `kafscale backup` makes one; what etcd loses between two witnesses is not modelled.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kafscale.log.heads import EpochStart, Seg
from kafscale.operations.rollforward.chain import Piece, chain_of

from tools.bundle_model.state import (
    INSTANCES,
    NOBODY,
    OWN_OBJECT,
    PARTITIONS,
    Entry,
    Head,
    Limits,
    Log,
    Moves,
    State,
)

EPOCHS_SKIPPED = 100
"""No owner of before has as high an epoch."""
Found = tuple[int, Entry]
"""The base of a stored entry, and the entry."""


class Loss(NamedTuple):
    limits: Limits

    def moves(self, state: State) -> Moves:
        if state.went_back:
            if not state.deletions and not state.puts:
                yield "the cluster is stopped and rolled forward", rolled_forward(state)
            return
        if state.snapshot is not None and state.snapshot != state.heads:
            lost = state._replace(heads=state.snapshot, snapshot=None, went_back=True)
            yield "etcd goes back to the snapshot", lost
        if state.counts.losses < self.limits.losses and state.snapshot is None:
            saved = state._replace(snapshot=state.heads)
            yield "a snapshot of etcd is taken", saved.counting(losses=state.counts.losses + 1)


def rolled_forward(state: State) -> State:
    """All processes have ended: their requests fail, whenever they arrive. What was answered as failed may be there."""
    return state._replace(
        heads=tuple(_rebuilt(state, partition) for partition in PARTITIONS),
        writers=((None, None), (None, None)),
        boots=tuple(state.boots[instance] + 1 for instance in INSTANCES),
        bundles=tuple(bundle._replace(creator=NOBODY) for bundle in state.bundles),
        requests=frozenset(),
        failed=0,
        went_back=False,
    )


def _rebuilt(state: State, partition: int) -> Head:
    found: set[Found] = set()
    for each in state.segments:
        if each.partition == partition:
            found.add((each.base, Entry(OWN_OBJECT, each.of, *each.etag)))
    for number, bundle in enumerate(state.bundles):
        if bundle.present:
            found |= {
                (each.base, Entry(number, each.epoch, each.values))
                for each in bundle.slices
                if each.partition == partition
            }
    revision, log = state.heads[partition]
    return Head(revision + 1_000, _log(log, frozenset(found)))


@cache
def _log(known: Log, found: frozenset[Found]) -> Log:
    """The log of what is stored. Logs of the model begin at 0. If the rebuilt one does not, or has a gap, then nothing
    behind its beginning was acknowledged, or something of it is lost: so it is empty, and the laws show which."""
    stored = {f"{number}": (base, entry) for number, (base, entry) in enumerate(sorted(found))}
    pieces = [Piece(_seg(name, *each), committed=each[1].plan > 0) for name, each in stored.items()]
    epochs = [EpochStart(epoch=known.epoch, start=known.next)]
    epochs += [EpochStart(epoch=entry.epoch, start=base) for base, entry in known.placed()]
    ends = [piece.seg.end for piece in pieces if piece.committed]
    chain = chain_of(pieces, epochs=epochs, committed_end=max([known.next, *ends]), log_start=0)
    whole = chain.start == 0 and not chain.gaps
    tail = tuple(stored[seg.etag][1] for seg in chain.segs) if whole else ()
    epoch = max([known.epoch, *(entry.epoch for _, entry in found)]) + EPOCHS_SKIPPED
    return Log(epoch=epoch, owner=NOBODY, next=chain.end if whole else 0, tail=tail, manifest=())


def _seg(name: str, base: int, entry: Entry) -> Seg:
    return Seg(
        base=base, last_delta=len(entry.values) - 1, size=len(entry.values), etag=name, crc32c=0, index_size=0,
        index_etag="", epoch=entry.epoch, min_ts=0, max_ts=0, records=len(entry.values), batches=1, created_ms=0,
        bundle=b"b" if entry.is_slice else b"",
    )  # fmt: skip
