"""What a broker says about the leader epochs of a partition, with epochs counted from the first one of its log."""

from __future__ import annotations

from kafscale.wire.schema import list_offsets, metadata
from kafscale.wire.schema import offset_for_leader_epoch as epochs_api

from e2e.harness.config_questions import INT32_MAX
from e2e.harness.raw import Raw
from e2e.harness.requests import ask


def epoch_in_metadata(raw: Raw, name: str) -> int:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=name)])
    epoch: int = ask(raw, metadata, 12, request).topics[0].partitions[0].leader_epoch
    return epoch


def epochs_of(raw: Raw, name: str, first: int) -> list[tuple[str, int, int, int, int]]:
    """What ListOffsets and OffsetForLeaderEpoch say: what was asked, error, offset, and epoch from `first` on."""
    found = []
    for timestamp in (-1, -2, -3, -4, 0):
        for held in (-1, first, first + 1):
            point = listed(raw, name, timestamp, held)
            epoch = point.leader_epoch - first if point.leader_epoch >= 0 else -1
            found.append(("offset", timestamp, point.error_code, point.offset, epoch))
    for number, asked in enumerate((-1, first, first + 1, first + 2, first + 100, INT32_MAX)):
        for held in (-1, first, first + 1):
            end = ended(raw, name, asked, held)
            epoch = end.leader_epoch - first if end.leader_epoch >= 0 else -1
            found.append(("end", number, end.error_code, end.end_offset, epoch))
    return found


def listed(raw: Raw, name: str, timestamp: int, held: int) -> list_offsets.ListOffsetsResponsePartition:
    part = list_offsets.ListOffsetsRequestPartition(
        partition_index=0, current_leader_epoch=held, timestamp=timestamp
    )
    topic = list_offsets.ListOffsetsRequestTopic(name=name, partitions=[part])
    answer = ask(raw, list_offsets, 9, list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic]))
    point: list_offsets.ListOffsetsResponsePartition = answer.topics[0].partitions[0]
    return point


def ended(raw: Raw, name: str, epoch: int, held: int) -> epochs_api.OffsetForLeaderEpochResponseEnd:
    part = epochs_api.OffsetForLeaderEpochRequestPartition(
        partition=0, current_leader_epoch=held, leader_epoch=epoch
    )
    topic = epochs_api.OffsetForLeaderEpochRequestTopic(topic=name, partitions=[part])
    request = epochs_api.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    end: epochs_api.OffsetForLeaderEpochResponseEnd = ask(raw, epochs_api, 4, request).topics[0].partitions[0]
    return end
