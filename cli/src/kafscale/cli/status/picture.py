"""What `kafscale status` says, from what etcd and the instances said. Pure.

Law: a warning names what clients notice and what to do about it; a cluster without one serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.cli.options import SERVICES, UPKEEP, WHAT_THEY_DO
from kafscale.storage.membership.records import Instance

READY: Final = "ready"
NO_ANSWER: Final = "no answer"
_MOVERS: Final = ("produce", "fetch")
_WITHOUT: Final = {
    "frontdoor": "no client can connect",
    "produce": "nothing can be written",
    "fetch": "nothing can be read",
    "coordinator": "consumer groups stand still",
    "admin": "clients learn nothing of topics",
}

_ORDER: Final = (*WHAT_THEY_DO,)

Totals = Mapping[str, float]
"""Metric name -> the sum over its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one instance said over HTTP. `health`: READY, or why not. Rates are per second over `over_s`."""

    health: str
    gauges: Totals
    rates: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What etcd says. Owners are instance ids, a partition's or slot's each."""

    namespace: str
    cluster_id: str | None
    etcd: tuple[str, ...]
    instances: tuple[Instance, ...]
    topics: int
    partitions: int
    groups: int
    partition_owners: tuple[str, ...]
    slot_owners: tuple[str, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    service: str
    node: int
    address: str
    state: str
    health: str
    age_s: int
    owns: int | None
    """Partitions of a produce instance, slots of a coordinator."""
    connections: int | None
    requests_per_s: float | None
    bytes_per_s: float | None
    records_per_s: float | None
    groups: int | None
    works: bool | None
    """Of upkeep: whether it is its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    namespace: str
    cluster_id: str | None
    etcd: tuple[str, ...]
    topics: int
    partitions: int
    partitions_owned: int
    groups: int
    rates_over_s: float
    instances: tuple[InstanceRow, ...]
    warnings: tuple[str, ...]
    serves: bool
    """Whether every service that clients need has a ready instance."""


def paint(kept: Kept, told: Mapping[str, Told], rates_over_s: float) -> Picture:
    """`told` by instance id. Of several boots of one node the newest counts."""
    instances = newest(kept.instances)
    partitions, slots = Counter(kept.partition_owners), Counter(kept.slot_owners)
    rows = tuple(
        _row(each, told[each.role + each.id], {"produce": partitions, "coordinator": slots}, kept.now_ms)
        for each in instances
    )
    serving = {row.service for row in rows if row.health == READY}
    return Picture(
        namespace=kept.namespace,
        cluster_id=kept.cluster_id,
        etcd=kept.etcd,
        topics=kept.topics,
        partitions=kept.partitions,
        partitions_owned=len(kept.partition_owners),
        groups=kept.groups,
        rates_over_s=round(rates_over_s, 1),
        instances=rows,
        warnings=tuple(_warnings(rows, serving, instances, partitions)),
        serves=serving >= set(SERVICES),
    )


def newest(instances: Iterable[Instance]) -> list[Instance]:
    """By role in the order of the request's way, then by node."""
    found: dict[tuple[str, int], Instance] = {}
    for each in sorted(instances, key=lambda instance: instance.create_revision):
        found[each.role, each.node_id] = each
    return [found[key] for key in sorted(found, key=lambda key: (_ORDER.index(key[0]), key))]


def _row(instance: Instance, told: Told, owners: Mapping[str, Counter[str]], now_ms: int) -> InstanceRow:
    role, prefix = instance.role, f"kafscale_{instance.role}_"

    def gauge(name: str) -> int | None:
        value = told.gauges.get(prefix + name)
        return None if value is None else int(value)

    def rate(name: str) -> float | None:
        value = told.rates.get(prefix + name)
        return None if value is None else round(value, 1)

    def moved(name: str) -> float | None:
        """Counted by topic: a service that has moved nothing yet shows none of them."""
        return rate(name) or 0.0 if role in _MOVERS and told.rates else None

    requests = "stream_requests_total" if role in ("coordinator", "admin") else "requests_total"
    listener = instance.listeners[0] if instance.listeners else None
    return InstanceRow(
        service=role,
        node=instance.node_id,
        address=f"{listener.host}:{listener.port}" if listener is not None else instance.address,
        state=instance.state.name.lower(),
        health=told.health,
        age_s=max(now_ms - instance.started_ms, 0) // 1000,
        owns=owners[role][instance.id] if role in owners else None,
        connections=gauge("connections"),
        requests_per_s=rate(requests),
        bytes_per_s=moved("bytes_total"),
        records_per_s=moved("records_total"),
        groups=gauge("groups"),
        works=bool(gauge("working")) if role == UPKEEP and told.gauges else None,
    )


def _warnings(
    rows: Iterable[InstanceRow], serving: set[str], instances: Iterable[Instance], partitions: Counter[str]
) -> Iterable[str]:
    for role in SERVICES:
        if role not in serving:
            yield f"no {role} is ready: {_WITHOUT[role]}; start one with `kafscale serve {role}`"
    if UPKEEP not in serving:
        yield "no upkeep is ready: nothing expires and nothing is compacted; start one with `kafscale serve upkeep`"
    for row in rows:
        if row.health == NO_ANSWER:
            yield f"{row.service} {row.node} at {row.address} is registered and does not answer: look at its log"
        elif row.health != READY:
            yield f"{row.service} {row.node} at {row.address} is not ready: {row.health}"
    live = {each.id for each in instances if each.role == "produce"}
    gone = sum(count for owner, count in partitions.items() if owner not in live)
    if gone:
        yield f"{gone} partitions belong to a produce instance that is gone: the next request to each moves it"
