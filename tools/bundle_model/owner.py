"""What a produce instance does: it claims, seals, plans, sends, checkpoints, resets, crashes."""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from tools.bundle_model.state import (
    INSTANCES,
    NOBODY,
    OWN_OBJECT,
    PARTITIONS,
    Bundle,
    Change,
    Condition,
    Entry,
    Etag,
    Flight,
    Head,
    Kind,
    Limits,
    Log,
    Moves,
    Mutation,
    Plan,
    Request,
    SegmentPut,
    Sent,
    Slice,
    State,
    Values,
    Writer,
    replaced,
)

FLIGHTS_MAX = 2


class Owner(NamedTuple):
    limits: Limits
    mutation: Mutation | None

    def moves(self, state: State) -> Moves:
        for instance in INSTANCES:
            yield from self._seals(state, instance)
            for partition in PARTITIONS:
                writer = state.writers[instance][partition]
                if writer is None:
                    yield from self._claims(state, instance, partition)
                    continue
                if self.mutation is Mutation.REUSE_OFFSET:
                    yield from self._reuses(state, instance, partition, writer)
                if state.counts.resets < self.limits.resets and not writer.sent and writer.flights:
                    reset = state.failing(writer.flights).with_writer(instance, partition, None)
                    yield f"i{instance} resets p{partition}", reset.counting(resets=state.counts.resets + 1)
                yield from self._plans(state, instance, partition, writer)
                yield from self._checkpoints(state, instance, partition, writer)
            yield from self._sends(state, instance)
            yield from self._crashes(state, instance)

    # -- ownership ----------------------------------------------------------------------------------

    def _claims(self, state: State, instance: int, partition: int) -> Moves:
        """Any instance may claim at any time. Leases only make that rare."""
        if state.counts.claims == self.limits.claims:
            return
        if state.went_back and self.mutation is not Mutation.CLAIM_UNFENCED:
            return
        revision, log = state.heads[partition]
        head = Head(revision + 1, log._replace(epoch=log.epoch + 1, owner=state.living[instance]))
        claimed = state._replace(heads=replaced(state.heads, partition, head))
        claimed = claimed.with_writer(instance, partition, Writer(head))
        yield f"i{instance} claims p{partition}", claimed.counting(claims=state.counts.claims + 1)

    def _crashes(self, state: State, instance: int) -> Moves:
        mine = state.living[instance]
        idle = not any(state.writers[instance]) and all(bundle.creator != mine for bundle in state.bundles)
        if state.counts.crashes == self.limits.crashes or idle:
            return
        crashed = state._replace(
            writers=replaced(state.writers, instance, (None, None)),
            boots=replaced(state.boots, instance, state.boots[instance] + 1),
            bundles=tuple(
                bundle._replace(creator=NOBODY) if bundle.creator == mine else bundle
                for bundle in state.bundles
            ),
        )
        yield f"i{instance} crashes", crashed.counting(crashes=state.counts.crashes + 1)

    # -- sealing ------------------------------------------------------------------------------------

    def _seals(self, state: State, instance: int) -> Moves:
        """Fresh records of some partitions become one bundle, or those of one partition a direct segment."""
        value = state.counts.next_value
        for chosen in ((0,), (1,), (0, 1)):
            mirrored = value == 1 and chosen == (1,)  # the partitions are alike: the first record is for 0
            if value + len(chosen) - 1 > self.limits.records or mirrored:
                continue
            if not all(can_seal(state.writers[instance][partition]) for partition in chosen):
                continue
            yield from self._seals_bundle(state, instance, chosen, fold=False)
            if self.limits.folds:
                yield from self._seals_bundle(state, instance, chosen, fold=True)
            if self.limits.direct and len(chosen) == 1:
                yield from self._seals_direct(state, instance, *chosen)

    def _seals_bundle(self, state: State, instance: int, chosen: tuple[int, ...], *, fold: bool) -> Moves:
        number, slices, after = len(state.bundles), [], state
        for value, partition in enumerate(chosen, start=state.counts.next_value):
            writer = state.writers[instance][partition]
            assert writer is not None
            repeated = self._foldable(writer) if fold else ()
            if repeated is None:
                return
            base, values = sealed_end(writer) - len(repeated), (*repeated, value)
            slices.append(Slice(partition, writer.head.log.epoch, base, values))
            after = with_flight(after, instance, partition, Flight(number, base, values, (value,)))
        after = after._replace(bundles=(*state.bundles, Bundle(state.living[instance], tuple(slices))))
        what = f"{'a fold of ' if fold else ''}partitions {chosen} as bundle {number}"
        yield f"i{instance} seals {what}", after.counting(next_value=state.counts.next_value + len(chosen))

    def _foldable(self, writer: Writer) -> Values | None:
        """The values of the newest slices of this epoch, which leave the tail with the commit; None: no fold."""
        if writer.flights or writer.sent:
            return None
        stop = writer.plan.end if writer.plan and self.mutation is not Mutation.FOLD_OVER_PLAN else 0
        log = writer.head.log
        newest = takewhile(
            lambda placed: (
                placed[1].is_slice
                and placed[1].epoch == log.epoch
                and placed[0] + len(placed[1].values) > stop
            ),
            reversed(list(log.placed())),
        )
        taken = [entry.values for _, entry in newest]
        return tuple(value for values in reversed(taken) for value in values) or None

    def _seals_direct(self, state: State, instance: int, partition: int) -> Moves:
        writer = state.writers[instance][partition]
        assert writer is not None
        value, base = state.counts.next_value, sealed_end(writer)
        epoch = writer.head.log.epoch
        put = SegmentPut(partition, base, Condition.ABSENT, epoch, Etag((value,)), settles=False, of=epoch)
        after = with_flight(state, instance, partition, Flight(OWN_OBJECT, base, (value,), (value,)))
        after = after._replace(puts=state.puts | {put})
        yield f"i{instance} seals p{partition} as a direct segment", after.counting(next_value=value + 1)

    def _reuses(self, state: State, instance: int, partition: int, writer: Writer) -> Moves:
        value = state.counts.next_value
        if writer.sent or not writer.flights or value > self.limits.records:
            return
        last = writer.flights[-1]
        if last.bundle == OWN_OBJECT or last.stored:
            return
        number = len(state.bundles)
        again = Flight(number, last.base, (value,), (value,))
        slices = (Slice(partition, writer.head.log.epoch, last.base, (value,)),)
        after = state.failing([last]).with_writer(
            instance, partition, writer._replace(flights=(*writer.flights[:-1], again))
        )
        after = after._replace(bundles=(*state.bundles, Bundle(state.living[instance], slices)))
        yield f"i{instance} reuses an offset of p{partition}", after.counting(next_value=value + 1)

    # -- settling and checkpoints -------------------------------------------------------------------

    def _plans(self, state: State, instance: int, partition: int, writer: Writer) -> Moves:
        may_plan = state.counts.plans < self.limits.plans
        base, run = self._run(state, writer) if may_plan and writer.plan is None else (0, [])
        for count in range(1, len(run) + 1):  # limits of size may change from plan to plan
            yield self._planned(state, instance, partition, base, run[:count])
        swapping = writer.sent and writer.sent.kind is Kind.SETTLE
        if (
            writer.plan and may_plan and not swapping
        ):  # a store failed, or meta moved: the object stays behind
            after = state.with_writer(instance, partition, writer._replace(plan=None))
            yield f"i{instance} drops the plan of p{partition}", after

    def _planned(
        self, state: State, instance: int, partition: int, base: int, run: list[Entry]
    ) -> tuple[str, State]:
        writer = state.writers[instance][partition]
        assert writer is not None
        number = state.counts.plans + 1
        values = tuple(value for entry in run for value in entry.values)
        etag = Etag(values, 0 if self.mutation is Mutation.EQUAL_PLANS else number)
        condition = Condition.ANY if self.mutation is Mutation.SETTLE_UNCOND else Condition.ABSENT
        put = SegmentPut(partition, base, condition, writer.head.log.epoch, etag, True, run[0].epoch)
        seen = writer.head.log if self.mutation is Mutation.SETTLE_BLIND else None
        plan = Plan(False, run[0].epoch, base, etag, seen)
        after = state.with_writer(instance, partition, writer._replace(plan=plan))
        after = after._replace(puts=state.puts | {put}).counting(plans=number)
        return f"i{instance} settles p{partition} {values}", after

    def _run(self, state: State, writer: Writer) -> tuple[int, list[Entry]]:
        """Base and entries of the first run of one epoch's slices, but none that a fold in flight takes."""
        placed = list(writer.head.log.placed())
        first = next((index for index, (_, entry) in enumerate(placed) if entry.is_slice), None)
        if first is None:
            return 0, []
        flights = (*writer.flights, *(writer.sent.flights if writer.sent else ()))
        stop = min((flight.base for flight in flights if flight.is_fold), default=NOBODY)
        if self.mutation is Mutation.FOLD_OVER_PLAN:
            stop = NOBODY
        epoch, entries = placed[first][1].epoch, []
        for base, entry in placed[first:]:
            if not entry.is_slice or entry.epoch != epoch or base + len(entry.values) > stop:
                break
            entries.append(entry)
        if not all(state.bundles[entry.bundle].present for entry in entries):
            return 0, []
        return placed[first][0], entries

    def _checkpoints(self, state: State, instance: int, partition: int, writer: Writer) -> Moves:
        """A segment of its own that leads the tail goes into a manifest."""
        log = writer.head.log
        if writer.sent or not log.tail or log.tail[0].is_slice:
            return
        moved = log._replace(tail=log.tail[1:], manifest=(*log.manifest, log.tail[0]))
        change = Change(partition, writer.head.revision, moved)
        after = state.with_writer(instance, partition, writer._replace(sent=Sent(Kind.CHECKPOINT, moved)))
        request = Request(state.living[instance], (change,))
        yield f"i{instance} checkpoints p{partition}", after._replace(requests=state.requests | {request})

    # -- commits ------------------------------------------------------------------------------------

    def _sends(self, state: State, instance: int) -> Moves:
        """One request with a compare-and-swap for each partition that has something ready."""
        after, changes = state, []
        for partition in PARTITIONS:
            writer = state.writers[instance][partition]
            if writer is None or writer.sent:
                continue
            next_writer = self._swap(writer) if writer.plan and writer.plan.stored else self._commit(writer)
            if next_writer is None:
                continue
            assert next_writer.sent is not None
            after = after.with_writer(instance, partition, next_writer)
            changes.append(Change(partition, writer.head.revision, next_writer.sent.log))
        if changes:
            request = Request(state.living[instance], tuple(changes))
            sent = [change.partition for change in changes]
            yield f"i{instance} sends {sent}", after._replace(requests=state.requests | {request})

    def _swap(self, writer: Writer) -> Writer:
        """The settled segment takes the place of its run."""
        plan, log = writer.plan, writer.head.log
        assert plan is not None
        blind = plan.seen or log
        log = log._replace(tail=settled(blind, plan), next=blind.next)
        return writer._replace(sent=Sent(Kind.SETTLE, log))

    def _commit(self, writer: Writer) -> Writer | None:
        ready = tuple(takewhile(lambda flight: flight.stored, writer.flights))
        rest = writer.flights[len(ready) :]
        if self.mutation is Mutation.OUT_OF_ORDER and not ready and len(rest) > 1 and rest[1].stored:
            ready, rest = rest[1:2], rest[:1]
        if not ready:
            return None
        log = writer.head.log
        for flight in ready:
            kept = log.tail
            if flight.is_fold:
                kept = tuple(entry for base, entry in log.placed() if base < flight.base)
            entry = Entry(flight.bundle, log.epoch, flight.values)
            log = log._replace(tail=(*kept, entry), next=log.next + len(flight.fresh))
        return writer._replace(flights=rest, sent=Sent(Kind.COMMIT, log, ready))


def can_seal(writer: Writer | None) -> bool:
    return writer is not None and len(writer.flights) < FLIGHTS_MAX


def sealed_end(writer: Writer) -> int:
    """The offset of the next record: after the log, and after what is in flight."""
    sent = writer.sent.flights if writer.sent else ()
    return writer.head.log.next + sum(len(flight.fresh) for flight in (*sent, *writer.flights))


def with_flight(state: State, instance: int, partition: int, flight: Flight) -> State:
    writer = state.writers[instance][partition]
    assert writer is not None
    return state.with_writer(instance, partition, writer._replace(flights=(*writer.flights, flight)))


def settled(log: Log, plan: Plan) -> tuple[Entry, ...]:
    """The tail, with one segment in the place of the run that the plan has rewritten."""
    tail: list[Entry] = []
    for base, entry in log.placed():
        if base == plan.base:
            tail.append(Entry(OWN_OBJECT, plan.epoch, *plan.etag))
        if not plan.base <= base < plan.end:
            tail.append(entry)
    return tuple(tail)
