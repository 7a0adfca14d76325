"""What must hold in every state, and over every step."""

from __future__ import annotations

from tools.bundle_model.state import NOBODY, PARTITIONS, Bundle, Etag, Mutation, Slice, State

Names = dict[tuple[int, int], Etag]
"""(partition, base) -> the etag of the segment under that name."""


def broken(state: State, mutation: Mutation | None) -> str | None:
    """The first law that the state breaks; None: none."""
    names = {(each.partition, each.base): each.etag for each in state.segments}
    if state.went_back:
        return without_copy(state)
    for partition in PARTITIONS:
        if wrong := wrong_log(state, partition, names):
            return f"partition {partition}: {wrong}"
    return wrong_records(state) or missed_by_reader(state, names) or leaked(state, mutation)


def without_copy(state: State) -> str | None:
    """Until the roll-forward, etcd may name anything; the objects are what counts."""
    stored = {value for segment in state.segments for value in segment.etag.values}
    for bundle in state.bundles:
        if bundle.present:
            stored |= {value for each in bundle.slices for value in each.values}
    if state.acked & ~sum(1 << value for value in stored):
        return "the only copy of an acknowledged record is deleted, or replaced"
    return None


def wrong_log(state: State, partition: int, names: Names) -> str | None:
    """What the head names exists with its bytes, and the log is dense."""
    log = state.heads[partition].log
    for base, entry in log.segments():
        if names.get((partition, base)) != Etag(entry.values, entry.plan):
            return f"segment {base} is missing or has other bytes"
    for base, entry in log.placed():
        if not entry.is_slice:
            continue
        if not state.bundles[entry.bundle].present:
            return f"bundle {entry.bundle} is named by a head and is deleted"
        if Slice(partition, entry.epoch, base, entry.values) not in state.bundles[entry.bundle].slices:
            return f"bundle {entry.bundle} has other bytes"
    if log.settled_end + sum(len(entry.values) for entry in log.tail) != log.next:
        return "the log is not dense up to next"
    return None


def wrong_records(state: State) -> str | None:
    every = [value for head in state.heads for value in head.log.records()]
    if len(set(every)) != len(every):
        return "a record is in the log twice"
    mask = sum(1 << value for value in every)
    if state.acked & ~mask:
        return "an acknowledged record is lost"
    if state.failed & mask:
        return "a record that was answered as failed is in the log"
    return None


def missed_by_reader(state: State, names: Names) -> str | None:
    view = state.reader
    if view is None:
        return None
    if not all(state.bundles[number].present for number in view.bundles):
        return "a reader within its grace misses a bundle"
    if any(names.get((view.partition, base)) != etag for base, etag in view.segments):
        return "a reader within its grace misses a segment"
    return None


def leaked(state: State, mutation: Mutation | None) -> str | None:
    """A bundle of a dead creator that no head names, and of which no later sweep could say that it is dead."""
    for number, bundle in enumerate(state.bundles):
        if not bundle.present or bundle.creator in state.living or state.is_named(number):
            continue
        for each in bundle.slices:
            log = state.heads[each.partition].log
            alive = log.epoch == each.epoch and log.next < each.end
            if alive and (log.owner in state.living or mutation is Mutation.NO_BUMP):
                return f"bundle {number} can never be deleted"
    return None


def bound_twice(state: State) -> str | None:
    """In a partition and an epoch, an offset has one byte sequence, in however many bundles."""
    seen: dict[tuple[int, int, int], int] = {}
    for bundle in state.bundles:
        for partition, epoch, base, values in bundle.slices:
            for offset, value in enumerate(values, start=base):
                if seen.setdefault((partition, epoch, offset), value) != value:
                    return "an offset of an epoch is bound to two byte sequences"
    return None


def risen(before: State, after: State) -> str | None:
    """A slice that is dead stays dead: so a sweep may read one head after another, without a fence."""
    for number, bundle in enumerate(before.bundles):
        for each in bundle.slices:
            then, now = before.heads[each.partition], after.heads[each.partition]
            if then is not now and is_dead(before, number, each) and not is_dead(after, number, each):
                return "a slice that was dead came back"
    return None


def is_dead(state: State, number: int, each: Slice) -> bool:
    log = state.heads[each.partition].log
    return not log.names(number) and (log.epoch > each.epoch or log.next >= each.end)


def tidied(state: State) -> State:
    """A deleted bundle that nothing can name again loses its contents: states with equal futures become one."""
    for number, bundle in enumerate(state.bundles):
        if bundle.slices and not (bundle.present or bundle.put_pending or is_used(state, number)):
            state = state.with_bundle(number, Bundle(NOBODY, (), put_pending=False))
    return state


def is_used(state: State, number: int) -> bool:
    if state.is_named(number) or (state.reader and number in state.reader.bundles):
        return True
    if any(writer and writer.holds(number) for writers in state.writers for writer in writers):
        return True
    return any(change.log.names(number) for request in state.requests for change in request.changes)
