"""A cluster as people have it: a thousand partitions with a day of history, read by all kinds of groups."""

from __future__ import annotations

import math
from binascii import crc32
from dataclasses import dataclass, replace

import pyarrow as pa
from kafscale.lake.catalog import Log
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.owners import owners
from kafscale.lake.lag.positions import Commit, Position, positions
from kafscale.lake.lag.report import DAY_MS, HOUR_MS, RECENT_MS, Facts
from kafscale.lake.lag.samples import WHOLE_EVERY_MS, sample
from kafscale.log.heads import Seg
from kafscale.storage.groups import ClassicGroup, ClassicMember, CommittedOffset, GroupState
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic

NOW = 1_763_786_400_000
STEP = 30_000
RECORD_BYTES = 240


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How a group of this kind reads. `mood` says how far it is behind at a time, see `behind_s`. It has committed in
    the partitions below `committed` of each topic."""

    group: str
    topics: tuple[str, ...]
    members: int
    mood: str
    unowned: int = 0
    committed: int = 1_000


TOPICS = {
    "orders": (48, 220.0, 7 * DAY_MS),
    "payments": (32, 90.0, 7 * DAY_MS),
    "clickstream": (128, 2_600.0, 2 * DAY_MS),
    "inventory.changes": (24, 40.0, 7 * DAY_MS),
    "shipments": (16, 25.0, 7 * DAY_MS),
    "audit-log": (12, 12.0, 30 * DAY_MS),
    "sessions": (64, 640.0, DAY_MS),
    "notifications": (24, 130.0, 3 * DAY_MS),
    "fraud.scores": (32, 90.0, 7 * DAY_MS),
    "search-index": (48, 300.0, 7 * DAY_MS),
}
KINDS = (
    Kind(group="order-processor", topics=("orders", "payments"), members=12, mood="calm"),
    Kind(group="billing", topics=("payments",), members=4, mood="calm"),
    Kind(group="clickstream-to-warehouse", topics=("clickstream",), members=16, mood="losing"),
    Kind(group="realtime-dashboard", topics=("clickstream", "sessions"), members=8, mood="calm"),
    Kind(group="recommendations", topics=("clickstream", "orders"), members=10, mood="catching up"),
    Kind(group="fraud-detector", topics=("payments", "fraud.scores"), members=6, mood="waves"),
    Kind(group="session-stitcher", topics=("sessions",), members=8, mood="stalled one"),
    Kind(group="inventory-sync", topics=("inventory.changes", "shipments"), members=3, mood="slow"),
    Kind(group="email-sender", topics=("notifications",), members=4, mood="calm", unowned=3),
    Kind(group="push-sender", topics=("notifications",), members=4, mood="rewound"),
    Kind(group="search-indexer", topics=("search-index", "inventory.changes"), members=6, mood="waves"),
    Kind(group="audit-archive", topics=("audit-log",), members=0, mood="stopped"),
    Kind(group="nightly-report", topics=("orders", "shipments"), members=0, mood="batch"),
    Kind(group="ml-features", topics=("sessions", "clickstream"), members=12, mood="skewed"),
    Kind(group="shipment-tracker", topics=("shipments",), members=2, mood="calm"),
    Kind(group="crm-export", topics=("sessions",), members=2, mood="lost one"),
    Kind(group="returns-forecast", topics=("shipments",), members=0, mood="stopped", committed=9),
    Kind(group="geo-enricher", topics=("orders", "sessions"), members=6, mood="calm"),
)


def end_at(topic: str, ago_s: float) -> int:
    """The integral of the rate: a partition's end so long ago."""
    partitions, total, _ = TOPICS[topic]
    wave = 0.55 * 86_400 / (2 * math.pi) * math.cos(2 * math.pi * (8 * 3_600 - ago_s) / 86_400)
    return int(total / partitions * (40 * 86_400 - ago_s - wave))


def chance(*of: object) -> float:
    """From 0 to 1, and always the same of the same."""
    return crc32(repr(of).encode()) / 2**32


def behind_s(kind: Kind, partition: int, ago_s: float) -> float:
    jitter = 0.4 + 1.2 * chance(kind.group, partition, ago_s)
    match kind.mood:
        case "losing":
            return (30 * 3_600 + 0.62 * (86_400 - ago_s)) * (1 + 0.06 * math.sin(partition))
        case "catching up":
            return max(3, (0.09 * ago_s + 900) * (1 + 0.3 * math.sin(partition * 2)))
        case "waves":
            return max(1, 90 + 85 * math.sin(ago_s / 2_900 + partition / 9))
        case "slow":
            return 1_500 + 0.12 * (86_400 - ago_s) + 40 * math.sin(partition)
        case "rewound":
            return 3 * jitter if ago_s > 200 else 9_000 - (200 - ago_s) * 3
        case "stalled one":
            return max(2, 19_800 - ago_s) if partition == 17 and ago_s < 19_800 else 2 * jitter
        case "skewed" | "lost one":
            some, late_s = (16, 4_200) if kind.mood == "skewed" else (64, 250_000)
            return (late_s if partition % some == 5 else 14) * jitter
        case "batch":
            return 4 + (93_600 - ago_s) % 86_400
        case "stopped":
            return max(2, 7.4 * 86_400 - ago_s)
        case _:
            return 0.0 if jitter < 0.7 else 2 * jitter


def segments(topic: str) -> tuple[Seg, ...]:
    """One an hour."""
    found = []
    for hour in range(30, 0, -1):
        base, end = end_at(topic, hour * 3_600), end_at(topic, (hour - 1) * 3_600)
        at = NOW - (hour - 1) * HOUR_MS
        size = (end - base) * RECORD_BYTES
        found.append(
            Seg(
                base=base, last_delta=end - base - 1, size=size, etag="", crc32c=0, index_size=0, index_etag="",
                epoch=1, min_ts=at - HOUR_MS, max_ts=at, records=end - base, batches=9, created_ms=at - 1,
            )
        )  # fmt: skip
    return tuple(found)


def logs() -> list[Log]:
    found = []
    for name, (partitions, _, retention_ms) in TOPICS.items():
        topic = Topic(
            name=name,
            topic_id=TopicId(name.encode().ljust(16)[:16]),
            partitions=partitions,
            configs={"retention.ms": str(retention_ms)},
        )
        stored = segments(name)
        start = max(0, end_at(name, retention_ms / 1000))
        found += [
            Log(topic=topic, partition=p, start=start, end=end_at(name, 0), segments=stored)
            for p in range(partitions)
        ]
    return found


def commits_at(ago_s: float) -> list[Commit]:
    found = []
    for kind in KINDS:
        for topic in kind.topics:
            for partition in range(min(kind.committed, TOPICS[topic][0])):
                late_s = behind_s(kind, partition, ago_s)
                offset = end_at(topic, ago_s + late_s)
                quiet = kind.mood in ("stopped", "batch")
                since_s = late_s if quiet else 0.5 + 19 * chance(topic, partition, ago_s)
                at_ms = NOW - int((ago_s + since_s) * 1000)
                committed = CommittedOffset(offset=offset, commit_ms=at_ms)
                found.append(Commit(group=kind.group, topic=topic, partition=partition, offset=committed))
    return sorted(found, key=lambda each: (each.group, each.topic, each.partition))


def groups() -> dict[str, GroupState]:
    found = {}
    for kind in KINDS:
        places = [(topic, p) for topic in kind.topics for p in range(TOPICS[topic][0])][kind.unowned :]
        members = []
        for number in range(kind.members):
            mine: dict[str, list[int]] = {}
            for topic, partition in places[number :: kind.members]:
                mine.setdefault(topic, []).append(partition)
            members.append(
                ClassicMember(
                    id=f"{kind.group}-{number}-3f1c", client_id=f"{kind.group}-{number}",
                    client_host=f"/10.2.{number}.14", session_timeout_ms=1, rebalance_timeout_ms=1,
                    assignment=assignment(mine),
                )
            )  # fmt: skip
        state = ClassicGroup(protocol_type="consumer", generation=3, members=tuple(members))
        found[kind.group] = GroupState(group=kind.group, state=state)
    return found


def assignment(topics: dict[str, list[int]]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    body = len(topics).to_bytes(4, "big")
    for name, partitions in topics.items():
        body += len(name).to_bytes(2, "big") + name.encode() + len(partitions).to_bytes(4, "big")
        body += b"".join(partition.to_bytes(4, "big") for partition in partitions)
    return b"\0\0" + body + b"\0\0\0\0"


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    body = len(topics).to_bytes(4, "big")
    return (
        b"\0\0"
        + body
        + b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
        + b"\0\0\0\0"
    )


def lag_of(position: Position, log: Log, late_s: float) -> Lag:
    committed = position.offset.offset if position.offset is not None else None
    offset = log.start if committed is None else committed
    retention_ms = log.topic.retention_ms
    records = max(0, log.end - max(offset, log.start))
    time_ms = min(int(late_s * 1000), retention_ms) if records else None
    return Lag(
        group=position.group, topic=position.topic, partition=position.partition, committed=committed,
        log_start=log.start, log_end=log.end, records=records, lost=max(0, log.start - offset),
        stable_end=log.end, stable_records=records,
        bytes=records * RECORD_BYTES, time_ms=time_ms,
        expires_in_ms=None if time_ms is None else max(0, retention_ms - time_ms),
    )  # fmt: skip


def world() -> Facts:
    """About 1,200 places. Deterministic."""
    everything, states = logs(), groups()
    places = {(log.topic.name, log.partition): log for log in everything}
    topics = list({log.topic.name: log.topic for log in everything}.values())
    owned = owners(states.values(), topics)

    def placed(ago_s: float) -> list[Position]:
        return positions(commits_at(ago_s), states, topics)

    def history(moments_s: range) -> pa.Table:
        tables = []
        for ago_s in moments_s:
            ended = [replace(log, end=end_at(log.topic.name, ago_s)) for log in everything]
            tables.append(sample(ended, placed(ago_s), owned, NOW - ago_s * 1000))
        return pa.concat_tables(tables)

    found = placed(0)
    kinds = {kind.group: kind for kind in KINDS}
    lags = []
    for each in found:
        late_s = behind_s(kinds[each.group], each.partition, 0)
        lags.append(lag_of(each, places[each.topic, each.partition], late_s))
    return Facts(
        cluster="production-eu",
        at_ms=NOW,
        logs=everything,
        positions=found,
        lags=lags,
        groups=states,
        recent=history(range(RECENT_MS // 1000, 0, -STEP // 1000)),
        overview=history(range(DAY_MS // 1000, 0, -3 * WHOLE_EVERY_MS // 1000)),
    )
