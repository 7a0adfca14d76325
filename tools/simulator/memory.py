"""What a process of produce holds in memory, seen from inside. Law: it belongs to partitions that the process owns, at
each moment, or when nothing is under way.

A partition that is kept after its epoch costs its writer, its tail and its table of producers, for as long as the
process lives. No answer to a client shows that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.server import ProduceService
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.process import Runtime, ServiceParts


@asynccontextmanager
async def build_noted(
    runtime: Runtime[ProduceSettings], note: Callable[[ProduceService], None]
) -> AsyncIterator[ServiceParts]:
    """As the service builds itself; `note` gets the parts of it that others do not see."""
    service = ProduceService(runtime)
    note(service)
    try:
        yield service.parts()
    finally:
        await service.close()


def astray(service: ProduceService) -> list[str]:
    """What belongs to no partition of this process."""
    tools, owned = service.ownership.tools, list(service.ownership.partitions.values())
    gather = tools.bundler._gather
    found = [
        *_of_others(owned, "heads", tools.bundler._heads),
        *_of_others(owned, "wants", (*gather._held, *gather._ready.items)),
    ]
    kept = sum(each.writer.kept.bytes for each in owned if each.writer is not None)
    if tools.kept.used_bytes != kept:
        found.append(f"{tools.kept.used_bytes} bytes of kept slices; its partitions keep {kept}")
    found += [
        f"batches of {each!r} from {unnamed} on, which its tail does not name"
        for each in owned
        if each.writer is not None and (unnamed := _not_in_tail(each.writer))
    ]
    return found


def left_over(service: ProduceService) -> list[str]:
    """The same, and what is held for no request. Nobody has sent a request lately."""
    tools, owned = service.ownership.tools, list(service.ownership.partitions.values())
    found = [
        *astray(service),
        *_of_others(owned, "undecided bundles", tools.bundler._undecided),
        *_of_others(owned, "hand-overs", service.handoffs._leaving),
    ]
    tables = [each.producers for each in owned]
    if strange := [each for each in service._producer_budget._tables if each not in tables]:
        found.append(f"{len(strange)} tables of producers of partitions that it does not own")
    if tools.budget.used_bytes:
        found.append(f"{tools.budget.used_bytes} bytes of requests")
    return found


def oldest_place_s(service: ProduceService) -> float:
    """For how long a bundle has had one of the few places that the partitions of the instance share; 0: none has."""
    flights = service.ownership.tools.bundler._gather._flights.values()
    oldest_ms = min((flight.sealed_ms for flight in flights), default=None)
    return 0.0 if oldest_ms is None else (service._runtime.clock.now_ms() - oldest_ms) / 1000


def _not_in_tail(writer: PartitionWriter) -> Sequence[int]:
    """Offsets of batches that are kept for folding and settling."""
    named = {(seg.base, seg.end) for seg in writer.head.tail}
    return [base for base, buffer in writer.kept._slices.items() if (base, buffer.end) not in named]


def _of_others(owned: Iterable[object], what: str, holders: Iterable[object]) -> list[str]:
    known = set(map(id, owned))
    strange = [each for each in holders if id(each) not in known]
    return [f"{what} of {len(strange)} partitions that it does not own, as {strange[0]!r}"] if strange else []
