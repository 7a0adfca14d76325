"""What happens outside of an owner: stores and etcd apply requests, deleters delete, a reader holds an old view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.bundle_model.state import (
    NOBODY,
    OWN_OBJECT,
    PARTITIONS,
    BundleDeletion,
    Condition,
    Etag,
    Head,
    Kind,
    Limits,
    Moves,
    Mutation,
    Request,
    Segment,
    SegmentDeletion,
    SegmentPut,
    Slice,
    State,
    View,
    Writer,
    replaced,
)


class World(NamedTuple):
    limits: Limits
    mutation: Mutation | None

    def moves(self, state: State) -> Moves:
        for number in range(len(state.bundles)):
            yield from self._bundle(state, number)
        for put in state.puts:
            yield from self._segment_put(state, put)
        for request in state.requests:
            yield from self._delivers(state, request)
        for deletion in state.deletions:
            yield from deletes(state, deletion)
        for partition in PARTITIONS:
            yield from self._collects_orphans(state, partition)
            yield from self._bumps(state, partition)
            yield from self._reads(state, partition)
        if state.reader:
            yield "the reader ends", state._replace(reader=None)

    # -- bundles ------------------------------------------------------------------------------------

    def _bundle(self, state: State, number: int) -> Moves:
        """A PUT under a unique name lands, perhaps twice; its creator learns of it; somebody deletes it."""
        bundle = state.bundles[number]
        if bundle.put_pending:
            there = bundle._replace(present=True, put_pending=False)
            yield f"the PUT of bundle {number} lands", state.with_bundle(number, there)
            if state.counts.repeats < self.limits.repeats:
                again = state.with_bundle(number, there._replace(put_pending=True))
                text = f"the PUT of bundle {number} lands, and a second copy is on its way"
                yield text, again.counting(repeats=state.counts.repeats + 1)
        if bundle.present and bundle.creator in state.living:
            yield from self._stored(state, number)
        unsent = bundle.present and bundle.slices and BundleDeletion(number) not in state.deletions
        if unsent and self._verified(state) and self._may_delete(state, number):
            deletions = state.deletions | {BundleDeletion(number)}
            yield f"the DELETE of bundle {number} is sent", state._replace(deletions=deletions)

    def _stored(self, state: State, number: int) -> Moves:
        """The answer of the PUT, or of the HEAD after a 412: the object has our id."""
        instance = state.living.index(state.bundles[number].creator)
        after = state
        for partition, writer in enumerate(state.writers[instance]):
            if writer is None:
                continue
            stored = [flight for flight in writer.flights if flight.bundle == number and not flight.stored]
            if not stored:
                continue
            flights = tuple(
                flight._replace(stored=True) if flight.bundle == number else flight
                for flight in writer.flights
            )
            after = after.with_writer(instance, partition, writer._replace(flights=flights))
            if self.mutation is Mutation.ACK_UPLOADED:
                after = after.acking(stored)
        if after is not state:
            yield f"i{instance} learns that bundle {number} is stored", after

    def _verified(self, state: State) -> bool:
        """Whether a deleter goes on: it looks for the newest witness first."""
        return not state.went_back or self.mutation is Mutation.DELETE_UNVERIFIED

    def _may_delete(self, state: State, number: int) -> bool:
        wrong = (Mutation.DELETE_AT_PLAN, Mutation.GC_MINE_ONLY)
        if state.is_named(number) and self.mutation not in wrong:
            return False
        in_grace = state.reader is not None and number in state.reader.bundles
        if in_grace and self.mutation is not Mutation.NO_GRACE:
            return False
        if self.mutation is Mutation.GC_UNNAMED:
            return not state.is_named(number)
        return all(self._given_up(state, number, each) for each in state.bundles[number].slices)

    def _given_up(self, state: State, number: int, each: Slice) -> bool:
        """Dead by what the head says, or known to its creator as one that will not be committed."""
        log = state.heads[each.partition].log
        end = each.base + 1 if self.mutation is Mutation.GC_BY_BASE else each.end
        if not log.names(number) and (log.epoch > each.epoch or log.next >= end):
            return True
        creator = state.bundles[number].creator
        if creator not in state.living:
            return False
        writer = state.writers[state.living.index(creator)][each.partition]
        if writer is None or writer.head.log.epoch != each.epoch:
            return not log.names(number) or self.mutation is Mutation.GC_MINE_ONLY
        if self.mutation is Mutation.DELETE_AT_PLAN and is_planned(writer, number) and log.names(number):
            return True
        return not writer.holds(number) and not log.names(number)

    # -- segments -----------------------------------------------------------------------------------

    def _segment_put(self, state: State, put: SegmentPut) -> Moves:
        there = segment_at(state, put.partition, put.base)
        landed = state
        if is_met(put.condition, there):
            kept = state.segments - {there} if there else state.segments
            landed = state._replace(
                segments=kept | {Segment(put.partition, put.base, put.epoch, put.etag, put.of)}
            )
        rest = state.puts - {put}
        name = f"the PUT of segment p{put.partition}/{put.base}"
        found = waiting(state, put)
        if found is None:
            yield f"{name} lands late", landed._replace(puts=rest)
            return
        instance, writer = found
        done = landed.with_writer(instance, put.partition, with_stored(writer, put))._replace(puts=rest)
        if landed is not state:
            yield f"{name} lands", done
            yield f"{name} lands, its answer is lost", landed
        elif there is None:
            again = put._replace(condition=Condition.ABSENT)
            yield f"{name} finds nothing to match", state._replace(puts=rest | {again})
        elif (there.etag, there.epoch) == (put.etag, put.epoch):
            yield f"{name} finds itself there", done
        elif self._replaces(put, there):
            again = put._replace(condition=there.etag)
            yield f"{name} finds an older object", state._replace(puts=rest | {again})
        elif not writer.sent:
            down = state.failing(writer.flights).with_writer(instance, put.partition, None)
            yield f"{name} finds a newer object, i{instance} steps down", down._replace(puts=rest)

    def _replaces(self, put: SegmentPut, there: Segment) -> bool:
        older = there.epoch < put.epoch or (there.epoch == put.epoch and put.settles)
        return older or self.mutation is Mutation.SETTLE_ANY

    def _collects_orphans(self, state: State, partition: int) -> Moves:
        """Objects that no head and no manifest names, below the first slice of the tail."""
        if not self._verified(state):
            return
        log = state.heads[partition].log
        named = {base for base, _ in log.segments()}
        bound = min((base for base, entry in log.placed() if entry.is_slice), default=log.next)
        if self.mutation is Mutation.ORPHANS_TO_NEXT:
            bound = log.next
        for each in state.segments:
            deletion = SegmentDeletion(partition, each.base, each.etag)
            unnamed = each.partition == partition and each.base < bound and each.base not in named
            if unnamed and deletion not in state.deletions:
                text = f"the DELETE of orphan segment p{partition}/{each.base} is sent"
                yield text, state._replace(deletions=state.deletions | {deletion})

    # -- heads --------------------------------------------------------------------------------------

    def _delivers(self, state: State, request: Request) -> Moves:
        if state.went_back and self.mutation is not Mutation.COMMIT_UNFENCED:
            return  # it is not applied, and sent again: nobody learns anything
        heads, won = state.heads, []
        for partition, revision, log in request.changes:
            head = state.heads[partition]
            won.append(
                head.revision == revision
                or (self.mutation is Mutation.NO_FENCE and head.log.next == log.next - 1)
            )
            if won[-1]:
                heads = replaced(heads, partition, Head(head.revision + 1, log))
        applied = state._replace(heads=heads, requests=state.requests - {request})
        if request.sender not in state.living:
            yield "a transaction of a dead instance is applied", applied
            return
        instance = state.living.index(request.sender)
        if self.mutation is Mutation.AMBIG_FAIL:
            yield (
                "a transaction is applied, and its lost answer called a failure",
                gives_up(applied, instance),
            )
        elif not request.repeated:  # the identical request is sent again
            again = applied.requests | {request._replace(repeated=True)}
            yield "a transaction is applied, its answer is lost", applied._replace(requests=again)
        yield f"a transaction is answered {won}", self._answered(applied, instance, request, won)

    def _answered(self, state: State, instance: int, request: Request, won: list[bool]) -> State:
        for (partition, revision, log), this in zip(request.changes, won, strict=True):
            writer, current = state.writers[instance][partition], state.heads[partition]
            if writer is None or writer.sent is None or writer.sent.log != log:
                continue
            sent, stands = writer.sent, current.log == log
            if this or (stands and request.repeated) or (self.mutation is Mutation.ACK_ALL and any(won)):
                known = current if this or stands else Head(revision, log)
                plan = None if sent.kind is Kind.SETTLE else writer.plan
                after = writer._replace(head=known, sent=None, plan=plan)
                state = state.acking(sent.flights).with_writer(instance, partition, after)
                continue
            there = set(current.log.records())  # as read from attempt, epochs and tail
            for flight in sent.flights:
                known_there = request.repeated and flight.fresh[0] in there
                state = state.acking([flight]) if known_there else state.failing([flight])
            state = state.failing(writer.flights).with_writer(instance, partition, None)
        return state

    def _bumps(self, state: State, partition: int) -> Moves:
        """The sweep ends the epoch of an owner that is gone."""
        revision, log = state.heads[partition]
        if log.owner in state.living or state.counts.claims == self.limits.claims:
            return
        if state.went_back and self.mutation is not Mutation.CLAIM_UNFENCED:
            return
        head = Head(revision + 1, log._replace(epoch=log.epoch + 1, owner=NOBODY))
        after = state._replace(heads=replaced(state.heads, partition, head))
        yield f"the sweep bumps p{partition}", after.counting(claims=state.counts.claims + 1)

    def _reads(self, state: State, partition: int) -> Moves:
        log = state.heads[partition].log
        if state.reader or state.counts.views == self.limits.views or not (log.tail or log.manifest):
            return
        segments = tuple((base, Etag(entry.values, entry.plan)) for base, entry in log.segments())
        bundles = tuple(entry.bundle for entry in log.tail if entry.is_slice)
        after = state._replace(reader=View(partition, bundles, segments))
        yield f"a reader looks at p{partition}", after.counting(views=state.counts.views + 1)


def is_met(condition: Condition | Etag, there: Segment | None) -> bool:
    if condition is Condition.ANY:
        return True
    if condition is Condition.ABSENT:
        return there is None
    return there is not None and there.etag == condition


def segment_at(state: State, partition: int, base: int) -> Segment | None:
    here = (each for each in state.segments if (each.partition, each.base) == (partition, base))
    return next(here, None)


def waiting(state: State, put: SegmentPut) -> tuple[int, Writer] | None:
    """The owner that waits for this PUT: that of the same epoch, with the same plan or flight."""
    for instance, writers in enumerate(state.writers):
        writer = writers[put.partition]
        if writer is None or writer.head.log.epoch != put.epoch:
            continue
        plan = writer.plan
        if put.settles and plan and not plan.stored and (plan.base, plan.etag) == (put.base, put.etag):
            return instance, writer
        if not put.settles and any(
            is_flight_of(put, flight.bundle, flight.base) and not flight.stored for flight in writer.flights
        ):
            return instance, writer
    return None


def is_flight_of(put: SegmentPut, bundle: int, base: int) -> bool:
    return bundle == OWN_OBJECT and base == put.base


def with_stored(writer: Writer, put: SegmentPut) -> Writer:
    if put.settles:
        assert writer.plan is not None
        return writer._replace(plan=writer.plan._replace(stored=True))
    return writer._replace(
        flights=tuple(
            flight._replace(stored=True) if is_flight_of(put, flight.bundle, flight.base) else flight
            for flight in writer.flights
        )
    )


def is_planned(writer: Writer, number: int) -> bool:
    """Whether a stored plan has a slice of this bundle."""
    plan = writer.plan
    if plan is None or not plan.stored:
        return False
    tail = writer.head.log.tail
    return any(entry.bundle == number and entry.values[0] in plan.etag.values for entry in tail)


def gives_up(state: State, instance: int) -> State:
    """Every partition of the instance with a transaction in flight is reset, and its producers get an error."""
    for partition, writer in enumerate(state.writers[instance]):
        if writer and writer.sent:
            state = state.failing((*writer.sent.flights, *writer.flights))
            state = state.with_writer(instance, partition, None)
    return state


def deletes(state: State, deletion: BundleDeletion | SegmentDeletion) -> Iterator[tuple[str, State]]:
    rest = state._replace(deletions=state.deletions - {deletion})
    if isinstance(deletion, BundleDeletion):
        gone = state.bundles[deletion.bundle]._replace(present=False)
        yield f"the DELETE of bundle {deletion.bundle} lands", rest.with_bundle(deletion.bundle, gone)
        return
    partition, base, etag = deletion
    segments = frozenset(
        each for each in state.segments if (each.partition, each.base, each.etag) != (partition, base, etag)
    )
    yield f"the DELETE of segment p{partition}/{base} lands", rest._replace(segments=segments)
