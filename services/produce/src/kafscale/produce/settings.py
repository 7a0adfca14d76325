"""The settings of the produce service, in addition to those that every service shares. Values only."""

from __future__ import annotations

from kafscale.log.snapshots import EXPIRY_MS
from kafscale.produce.bundles.gather import GatherLimits
from kafscale.produce.log.model import NEVER, Limits
from kafscale.produce.log.producer_budget import PRODUCER_BYTES_MAX
from kafscale.produce.log.producers import ProducerBounds
from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import UNCOMPRESSED, Topic
from kafscale.wire.compression import Codec, Compression
from pydantic import Field

COMPACTED_TAIL_REST_MS = 60_000
"""How long segments of a compacted topic rest in the tail at most, where writes never pause for a second."""
COMPACTED_TAIL_REST_MIN_MS = 1_000
BUNDLES_PER_S = 20


class ProduceSettings(ServiceSettings):
    produce_partition_bytes: int = Field(
        64 * MIB, ge=MIB, description="Bytes one partition may hold between arrival and commit."
    )
    produce_pipeline_max: int = Field(
        4, ge=1, le=16, description="Segments of one partition that may be uploaded at once."
    )
    produce_linger_ms: int = Field(
        5,
        ge=0,
        description="Longest wait of a bundle for requests that are likely to come soon. Where bundles are slow it is "
        "half the time that they take. A producer that is alone does not wait.",
    )
    produce_puts_max: int | None = Field(
        None,
        ge=1,
        description="PUTs that an instance may have in flight at once; on a slow store the limit adapts below it. "
        "Default, and at most: what the store's connections carry (48 on S3; 1,024 on a directory).",
    )
    produce_linger_max_ms: int = Field(
        5_000, ge=1, description="Longest time that a record waits for the budget of bundles."
    )
    produce_trust_headers: bool = Field(
        False,
        description="Do not open batches to check them: trust the counts and timestamps in their headers. Saves up to "
        "a twentieth of produce's CPU, and the decompression. Only for clusters whose producers are all trusted: a "
        "wrong batch stops every consumer of its partition, and a wrong timestamp misleads retention and lookups by "
        "time.",
    )
    bundle_direct_bytes: int = Field(
        MIB,
        ge=1,
        description="A partition with as many bytes in its buffer writes a segment of its own. 1: each request becomes "
        "a segment, and no bundles are written.",
    )
    bundles_per_s: int | None = Field(
        None,
        ge=1,
        description="Budget of bundles per second, of all instances. Default: 20 on S3, none on a directory.",
    )
    marker_bundles_per_s: int | None = Field(
        None,
        ge=1,
        description="Budget of further bundles per second for the ends of transactions, of all instances. "
        "Default: 20 on S3, none on a directory.",
    )
    bundle_grace_ms: int = Field(900_000, ge=0, description="Delay before an unused bundle is deleted.")
    head_commits_per_s: int = Field(
        2_000, ge=1, description="Budget of commits of heads per second for bundles, of all instances."
    )
    settle_keep_bytes: int = Field(
        64 * MIB, ge=0, description="Memory for the batches of slices that are not settled yet."
    )
    settle_ms: int = Field(
        900_000,
        ge=1_000,
        description="Age at which a slice of a bundle becomes part of a segment, give or take a tenth.",
    )
    produce_handoffs_per_s: int = Field(
        20, ge=1, description="Partitions handed over per second while rebalancing."
    )
    produce_producer_ids: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="Idempotent producers that a partition remembers; beyond it the longest inactive is forgotten.",
    )
    produce_producer_bytes: int = Field(
        PRODUCER_BYTES_MAX,
        ge=MIB,
        description="Memory for the idempotent producers of all partitions of an instance.",
    )
    produce_producer_expiration_ms: int = Field(
        EXPIRY_MS,
        ge=1_000,
        le=EXPIRY_MS,
        description="An inactive producer is forgotten after this time: Kafka's producer.id.expiration.ms.",
    )


def bundles_per_s(settings: ProduceSettings, store: ObjectStore) -> int | None:
    """None: the store bills nothing, every bundle may go at once."""
    return settings.bundles_per_s or (BUNDLES_PER_S if store.bills_requests else None)


def marker_bundles_per_s(settings: ProduceSettings, store: ObjectStore) -> int | None:
    """None: as with `bundles_per_s`."""
    return settings.marker_bundles_per_s or (BUNDLES_PER_S if store.bills_requests else None)


def gather_limits(settings: ProduceSettings) -> GatherLimits:
    return GatherLimits(
        linger_ms=settings.produce_linger_ms,
        hold_max_ms=settings.flush_interval_ms,
        linger_max_ms=settings.produce_linger_max_ms,
    )


def producer_bounds(settings: ProduceSettings) -> ProducerBounds:
    return ProducerBounds(
        ids_max=settings.produce_producer_ids, expiration_ms=settings.produce_producer_expiration_ms
    )


def _compression_of(topic: Topic) -> Compression | None:
    if topic.compression is None:
        return None
    name, level = topic.compression
    return Compression(Codec.NONE if name == UNCOMPRESSED else Codec[name.upper()], level)


def limits_of(topic: Topic, settings: ProduceSettings) -> Limits:
    """What a writer of this topic must keep to, now."""
    return Limits(
        max_message_bytes=min(topic.max_message_bytes, settings.produce_partition_bytes),
        segment_bytes=topic.segment_bytes,
        seal_bytes_max=settings.segment_bytes,
        held_bytes_max=settings.produce_partition_bytes,
        pipeline_max=settings.produce_pipeline_max,
        linger_ms=topic.linger_ms or 0,
        flush_interval_ms=settings.flush_interval_ms,
        settle_ms=min(settings.settle_ms, _compaction_lag_ms(topic)),
        direct_bytes=settings.bundle_direct_bytes,
        log_append_time=topic.takes_append_time,
        future_max_ms=topic.timestamp_after_max_ms,
        past_max_ms=topic.timestamp_before_max_ms,
        keys_required=topic.is_compacted,
        compression=_compression_of(topic),
        trusts_headers=settings.produce_trust_headers,
        transactions=settings.transactions,
        tail_rest_ms=min(COMPACTED_TAIL_REST_MS, _compaction_lag_ms(topic)) if topic.is_compacted else None,
    )


def _compaction_lag_ms(topic: Topic) -> int:
    """How long records may stay where compaction does not reach them: slices of bundles, and the head's tail."""
    if not topic.is_compacted:
        return NEVER
    return max(COMPACTED_TAIL_REST_MIN_MS, topic.max_compaction_lag_ms)
