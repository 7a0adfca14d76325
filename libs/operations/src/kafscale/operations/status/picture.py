"""The content of `kafscale status`, from etcd's records and the instances' answers. Pure.

Law: a warning names the effect on clients and the remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.operations.sentences import counted
from kafscale.operations.services import SERVICES, UPKEEP, WHAT_THEY_DO
from kafscale.runtime.addresses import join_address, split_address
from kafscale.storage.membership.records import Instance

READY: Final = "ready"
NO_ANSWER: Final = "no answer"
CLOSING_LONG_S: Final = 30
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  (what others listen on)
_MOVERS: Final = ("produce", "fetch")
_WITHOUT: Final = {
    "frontdoor": "no client can connect",
    "produce": "nothing can be written",
    "fetch": "nothing can be read",
    "coordinator": "consumer groups make no progress",
    "admin": "clients get no metadata",
}

Totals = Mapping[str, float]
"""Metric name -> the sum over its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The answers of one instance over HTTP. `health`: READY, or the reason. Rates are per second."""

    health: str
    gauges: Totals
    rates: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """The slices of bundles that heads name: their owners have not settled them into segments yet."""

    slices: int = 0
    bytes: int = 0
    oldest_created_ms: int | None = None
    """When the oldest of them was written. None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """The transactions that the records of transactional ids have. A time of None: there is none."""

    under_way: int = 0
    oldest_started_ms: int | None = None
    closing: int = 0
    """Decided, and not ended everywhere."""
    oldest_changed_ms: int | None = None
    """Of these: when the record that has been as it is for the longest time was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The records in etcd. Owners are instance ids, one for each owned partition or slot."""

    namespace: str
    cluster_id: str | None
    etcd: tuple[str, ...]
    instances: tuple[Instance, ...]
    topics: int
    partitions: int
    groups: int
    partition_owners: tuple[str, ...]
    slot_owners: tuple[str, ...]
    unsettled: Unsettled = Unsettled()
    unfinished: Unfinished = Unfinished()
    disk_full: str | None = None
    """A sentence about the disk of the data directory, if the cluster is on this machine."""
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    service: str
    node: int
    address: str
    metrics: str
    """host:port that answers /metrics and /readyz by HTTP."""
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
    """Of upkeep: whether it is the active instance."""
    went_back: bool
    """It says that etcd was lost, restored or replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    namespace: str
    cluster_id: str | None
    etcd: tuple[str, ...]
    topics: int
    partitions: int
    partitions_owned: int
    groups: int
    slices: int
    """Slices of bundles that are not settled yet."""
    slice_bytes: int
    oldest_slice_s: int | None
    """The age of the oldest slice. None: there is none."""
    transactions: int
    """Transactions under way."""
    oldest_transaction_s: int | None
    closing: int
    """Transactions that are decided and not ended everywhere."""
    oldest_closing_s: int | None
    """For how long the record of one of them has not changed, at most."""
    rates_over_s: float
    instances: tuple[InstanceRow, ...]
    warnings: tuple[str, ...]
    serves: bool
    """True if each service that clients need has a ready instance, and the disk takes records."""


def paint(kept: Kept, observed: Mapping[str, Observed], rates_over_s: float) -> Picture:
    """`observed` is by role and instance id. Of several boots of a node only the newest is shown."""
    instances = newest(kept.instances)
    partitions, slots = Counter(kept.partition_owners), Counter(kept.slot_owners)
    rows = tuple(
        _row(each, observed[each.role + each.id], {"produce": partitions, "coordinator": slots}, kept.now_ms)
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
        slices=kept.unsettled.slices,
        slice_bytes=kept.unsettled.bytes,
        oldest_slice_s=_age_s(kept.unsettled.oldest_created_ms, kept.now_ms),
        transactions=kept.unfinished.under_way,
        oldest_transaction_s=_age_s(kept.unfinished.oldest_started_ms, kept.now_ms),
        closing=kept.unfinished.closing,
        oldest_closing_s=_age_s(kept.unfinished.oldest_changed_ms, kept.now_ms),
        rates_over_s=round(rates_over_s, 1),
        instances=rows,
        warnings=(
            *_of_disk(kept.disk_full),
            *_warnings(rows, serving, instances, partitions),
            *_of_closing(_age_s(kept.unfinished.oldest_changed_ms, kept.now_ms)),
        ),
        serves=serving >= set(SERVICES) and kept.disk_full is None,
    )


def _age_s(since_ms: int | None, now_ms: int) -> int | None:
    """An instance's clock may be ahead of this one."""
    return None if since_ms is None else max(now_ms - since_ms, 0) // 1000


def newest(instances: Iterable[Instance]) -> list[Instance]:
    """By role in the order of `WHAT_THEY_DO`, then by node."""
    found: dict[tuple[str, int], Instance] = {}
    for each in sorted(instances, key=lambda instance: instance.create_revision):
        found[each.role, each.node_id] = each
    order = list(WHAT_THEY_DO)
    return [found[key] for key in sorted(found, key=lambda key: (order.index(key[0]), key))]


def http_address(instance: Instance) -> str:
    """An address to connect to. An instance that listens on all addresses has one only in its gRPC address."""
    host, port = split_address(instance.http_address)
    if host in _WILDCARDS:
        host = split_address(instance.address)[0]
    return join_address(host, port)


def _row(
    instance: Instance, observed: Observed, owners: Mapping[str, Counter[str]], now_ms: int
) -> InstanceRow:
    role, prefix = instance.role, f"kafscale_{instance.role}_"

    def gauge(name: str) -> int | None:
        value = observed.gauges.get(prefix + name)
        return None if value is None else int(value)

    def rate(name: str) -> float | None:
        value = observed.rates.get(prefix + name)
        return None if value is None else round(value, 1)

    def moved(name: str) -> float | None:
        """These metrics are labelled by topic, so they do not exist before the first record."""
        return rate(name) or 0.0 if role in _MOVERS and observed.rates else None

    requests = "stream_requests_total" if role in ("coordinator", "admin") else "requests_total"
    listener = instance.listeners[0] if instance.listeners else None
    return InstanceRow(
        service=role,
        node=instance.node_id,
        address=f"{listener.host}:{listener.port}" if listener is not None else instance.address,
        metrics=http_address(instance),
        state=instance.state.name.lower(),
        health=observed.health,
        age_s=max(now_ms - instance.started_ms, 0) // 1000,
        owns=owners[role][instance.id] if role in owners else None,
        connections=gauge("connections"),
        requests_per_s=rate(requests),
        bytes_per_s=moved("bytes_total"),
        records_per_s=moved("records_total"),
        groups=gauge("groups"),
        works=bool(gauge("working")) if role == UPKEEP and observed.gauges else None,
        went_back=bool(gauge("history_stopped")),
    )


def _of_disk(full: str | None) -> Iterable[str]:
    if full is not None:
        yield f"{full}: records are refused with KAFKA_STORAGE_ERROR; make room, and everything goes on by itself"


def _of_closing(oldest_s: int | None) -> Iterable[str]:
    if oldest_s is not None and oldest_s >= CLOSING_LONG_S:
        yield (
            f"a transaction that is decided has not ended everywhere for {oldest_s} s: readers of committed records "
            "or consumers of its groups wait; look at the logs of produce and the coordinators"
        )


def _warnings(
    rows: Iterable[InstanceRow], serving: set[str], instances: Iterable[Instance], partitions: Counter[str]
) -> Iterable[str]:
    for role in SERVICES:
        if role not in serving:
            yield f"no {role} is ready: {_WITHOUT[role]}; start one with `kafscale serve {role}`"
    if UPKEEP not in serving:
        yield "no upkeep is ready: nothing expires and nothing is compacted; start one with `kafscale serve upkeep`"
    if stopped := sorted({row.service for row in rows if row.went_back}):
        yield (
            f"etcd went back in its history, say {', '.join(stopped)}: no records are accepted and no object is "
            "deleted; see docs/operations.md, KafscaleHistoryWentBack"
        )
    for row in rows:
        if row.health == NO_ANSWER:
            yield f"{row.service} {row.node} at {row.address} is registered but does not answer; look at its log"
        elif row.health != READY:
            yield f"{row.service} {row.node} at {row.address} is not ready: {row.health}"
    live = {each.id for each in instances if each.role == "produce"}
    gone = sum(count for owner, count in partitions.items() if owner not in live)
    if gone:
        of_it = f"{counted(gone, 'partition')} belong{'s' * (gone == 1)} to a produce instance that has died"
        yield f"{of_it}; each moves at its next request"
