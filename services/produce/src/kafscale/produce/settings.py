"""The settings of the produce service, beside those that every service shares. Values only."""

from __future__ import annotations

from kafscale.produce.log.model import Limits
from kafscale.runtime.settings import MIB, ServiceSettings
from kafscale.storage.objects import ObjectStore
from kafscale.storage.topics import Topic
from pydantic import Field

COMPACTED_TAIL_REST_MS = 60_000
"""A checkpoint a minute at most for what trickles into a partition of a compacted topic."""


class ProduceSettings(ServiceSettings):
    produce_partition_bytes: int = Field(
        64 * MIB, ge=MIB, description="Bytes one partition may hold between arrival and commit."
    )
    produce_pipeline_max: int = Field(
        4, ge=1, le=16, description="Segments of one partition that may be uploaded at once."
    )
    produce_linger_ms: int | None = Field(
        None, ge=0, description="Wait of an idle partition before it seals; default: what the store says."
    )
    produce_segments_per_s: int | None = Field(
        None, ge=1, description="Budget of segments per second; default: what the store says."
    )
    produce_linger_max_ms: int = Field(
        5_000, ge=1, description="Longest a record waits for the budget of segments."
    )
    produce_handoffs_per_s: int = Field(
        20, ge=1, description="Partitions given away per second while rebalancing."
    )


def segments_per_s(settings: ProduceSettings, store: ObjectStore) -> int | None:
    """None: the store bills nothing, every flush may go at once."""
    return settings.produce_segments_per_s or store.puts_per_s_max


def limits_of(topic: Topic, settings: ProduceSettings, store: ObjectStore) -> Limits:
    """What a writer of this topic must keep to, now."""
    topic_linger_ms = topic.linger_ms
    linger_ms = settings.produce_linger_ms if topic_linger_ms is None else topic_linger_ms
    return Limits(
        max_message_bytes=min(topic.max_message_bytes, settings.produce_partition_bytes),
        segment_bytes=topic.segment_bytes,
        seal_bytes_max=settings.segment_bytes,
        held_bytes_max=settings.produce_partition_bytes,
        pipeline_max=settings.produce_pipeline_max,
        linger_min_ms=store.linger_min_ms if linger_ms is None else linger_ms,
        linger_whole=bool(topic_linger_ms),
        flush_interval_ms=settings.flush_interval_ms,
        governed=segments_per_s(settings, store) is not None,
        governed_linger_max_ms=settings.produce_linger_max_ms,
        log_append_time=topic.takes_append_time,
        keys_required=topic.is_compacted,
        tail_rest_ms=COMPACTED_TAIL_REST_MS if topic.is_compacted else None,
    )
