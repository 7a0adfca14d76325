"""Reads registrations and owners from etcd, and health and metrics from every instance."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from kafscale.log.heads import HEAD_FEATURES
from kafscale.operations.status.picture import (
    NO_ANSWER,
    READY,
    Kept,
    Observed,
    Picture,
    Totals,
    Unfinished,
    Unsettled,
    http_address,
    newest,
    paint,
)
from kafscale.storage.cluster_record import decode_cluster_id
from kafscale.storage.coordination import decode_owner
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace, UnknownKey
from kafscale.storage.membership.records import Instance, decode_live
from kafscale.storage.schema import UnreadableValue, parse_value
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import TopicState, decode_topic
from kafscale.storage.transactions import decode_transaction
from kafscale.store.v1 import store_pb2 as pb

T = TypeVar("T")

HTTP_TIMEOUT_S: Final = 3.0
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
AT_ONCE: Final = 16
HEADS_PER_READ: Final = 500
RECORDS_PER_READ: Final = 40
"""A value has at most 1.5 MiB (etcd's limit), and a response of etcd at most 64 MiB."""


async def look(
    etcd: EtcdClient,
    keys: Keyspace,
    endpoints: tuple[str, ...],
    interval_s: float,
    disk_full: str | None = None,
) -> Picture:
    """Takes a little longer than the interval: rates are the difference of two readings. Raises EtcdError."""
    kept = replace(await _kept(etcd, keys, endpoints), disk_full=disk_full)
    instances = newest(kept.instances)
    first, began = await scrape(instances), time.monotonic()
    await asyncio.sleep(interval_s)
    second, health = await asyncio.gather(scrape(instances), _health(instances))
    over_s = time.monotonic() - began
    observed = {
        name: Observed(
            health=health[name], gauges=second[name], rates=rates(first[name], second[name], over_s)
        )
        for name in health
    }
    return paint(kept, observed, over_s)


async def _kept(etcd: EtcdClient, keys: Keyspace, endpoints: tuple[str, ...]) -> Kept:
    live, topics, owners, slots, groups, cluster = await asyncio.gather(
        etcd.prefix(keys.live_prefix()),
        etcd.prefix(keys.topics_prefix()),
        etcd.prefix(keys.owners_prefix()),
        etcd.prefix(keys.slot_claims_prefix()),
        etcd.prefix(keys.groups_prefix(), keys_only=True),
        etcd.range(keys.cluster()),
    )
    found = readable(topics.kvs, lambda kv: decode_topic(keys.parse_topic(kv.key), kv.value))
    active = [topic for topic in found if topic.state is TopicState.ACTIVE]
    return Kept(
        namespace=keys.namespace,
        cluster_id=next(iter(readable(cluster.kvs, lambda kv: decode_cluster_id(kv.value))), None),
        etcd=endpoints,
        instances=tuple(readable(live.kvs, lambda kv: decode_live(kv, keys))),
        topics=len(active),
        partitions=sum(topic.partitions for topic in active),
        groups=count_groups(keys, (kv.key for kv in groups.kvs)),
        partition_owners=tuple(
            record.owner for record in readable(owners.kvs, lambda kv: decode_owner(kv.value)) if record.owner
        ),
        slot_owners=tuple(
            slot.owner for slot in readable(slots.kvs, lambda kv: decode_owner(kv.value)) if slot.owner
        ),
        unsettled=await read_unsettled(etcd, keys),
        unfinished=await read_unfinished(etcd, keys),
        now_ms=int(time.time() * 1000),
    )


async def read_unsettled(etcd: EtcdClient, keys: Keyspace) -> Unsettled:
    """Reads all heads, because a partition without an owner has slices too and no instance reports them.

    Page by page, so the heads are not of one moment. Raises EtcdError.
    """
    slices: list[pb.Seg] = []
    async for kv in etcd.each(keys.heads_prefix(), page_keys=HEADS_PER_READ):
        with contextlib.suppress(UnreadableValue):  # `kafscale fsck` reports damage
            slices += _slices_of(kv.value)
    return Unsettled(
        slices=len(slices),
        bytes=sum(seg.size for seg in slices),
        oldest_created_ms=min((seg.created for seg in slices), default=None),
    )


async def read_unfinished(etcd: EtcdClient, keys: Keyspace) -> Unfinished:
    """Reads all records of transactional ids, page by page. Raises EtcdError."""
    started: list[int] = []
    changed: list[int] = []
    async for kv in etcd.each(keys.transactions_prefix(), page_keys=RECORDS_PER_READ):
        with contextlib.suppress(UnreadableValue):  # `kafscale fsck` reports damage
            state = decode_transaction(kv.value)
            if state.current is not None:
                started.append(state.started_ms)
            if state.closing is not None:
                changed.append(state.changed_ms)
    return Unfinished(
        under_way=len(started),
        oldest_started_ms=min(started, default=None),
        closing=len(changed),
        oldest_changed_ms=min(changed, default=None),
    )


def _slices_of(value: bytes) -> list[pb.Seg]:
    """Without `decode_head`, which builds every segment of the tail."""
    head = pb.Head()
    parse_value(head, value, "head", HEAD_FEATURES)
    return [seg for seg in head.tail if seg.bundle]


def count_groups(keys: Keyspace, found: Iterable[bytes]) -> int:
    """Counts groups, without the keys of their members and unknown keys."""
    named = set()
    for key in found:
        with contextlib.suppress(UnknownKey):
            _, group, beneath = keys.parse_in_group(key)
            if beneath is None:
                named.add(group)
    return len(named)


def readable(kvs: Iterable[KeyValue], decode: Callable[[KeyValue], T]) -> list[T]:
    """Leaves out damaged values and those of later versions. `kafscale fsck` reports damage."""
    found: list[T] = []
    for kv in kvs:
        with contextlib.suppress(UnreadableValue):
            found.append(decode(kv))
    return found


async def scrape(instances: list[Instance]) -> dict[str, Totals]:
    return {name: totals(text) for name, text in (await metrics_texts(instances)).items()}


async def metrics_texts(instances: list[Instance]) -> dict[str, str]:
    """Prometheus' text form by role and id; empty for an instance that does not answer."""
    return await _each(instances, "/metrics", lambda status, text: text if status == 200 else "")


async def _health(instances: list[Instance]) -> dict[str, str]:
    return await _each(instances, "/readyz", _verdict)


def _verdict(status: int, text: str) -> str:
    if status == 0:
        return NO_ANSWER
    return READY if status == 200 else text.strip() or f"status {status}"


async def _each(instances: list[Instance], path: str, read: Callable[[int, str], T]) -> dict[str, T]:
    """By role and id. An unreachable instance has status 0 and no text."""

    async def ask(instance: Instance) -> T:
        return read(*await asyncio.to_thread(_get, http_address(instance), path))

    answers = await gather_bounded(map(ask, instances), AT_ONCE)
    return {each.role + each.id: answer for each, answer in zip(instances, answers, strict=True)}


def _get(address: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(BODY_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""  # shown as an instance that does not answer
    finally:
        connection.close()


def totals(text: str) -> dict[str, float]:
    """The sum of each metric's samples in Prometheus' text form."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        labelled, _, value = line.rpartition(" ")
        if labelled and not line.startswith("#"):
            name = labelled.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def labelled(text: str, metric: str, label: str) -> dict[str, float]:
    """The samples of one metric by the value of one label, summed over the others."""
    found: dict[str, float] = {}
    sought = re.compile(rf'{re.escape(metric)}\{{(?:.*,)?{re.escape(label)}="((?:[^"\\]|\\.)*)".*\}} (\S+)')
    for line in text.splitlines():
        if line.startswith(metric) and (sample := sought.fullmatch(line)) is not None:
            found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
    return found


def rates(before: Totals, after: Totals, over_s: float) -> dict[str, float]:
    """Counters per second. A counter that fell was reset by a restart; a new counter started at 0."""
    if not before:
        return {}
    return {
        name: max(value - before.get(name, 0.0), 0.0) / over_s
        for name, value in after.items()
        if name.endswith("_total")
    }
