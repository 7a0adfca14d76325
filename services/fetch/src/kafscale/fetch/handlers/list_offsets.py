"""ListOffsets (2): v0-11.   v0 offsets before a time · v1 one offset by time · v4 leader epochs · v6 flexible
· v7 max timestamp, KIP-734 · v8 earliest local · v9 latest tiered · v10 timeout · v11 earliest pending upload

By time: the first record at or after it, with its timestamp; (-1, -1) without error when there is none. All
answers are given after a linearizable read. Nothing is tiered here, so local is all there is and tiered is none.
v0 answers places to begin at, the newest first: starts of segments written by that time, and the log's end. Times
below -2 are only times to it.
Returns TOPIC_AUTHORIZATION_FAILED, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION,
UNSUPPORTED_VERSION for special timestamps of later versions, INVALID_REQUEST for a partition named twice;
LEADER_NOT_AVAILABLE and KAFKA_STORAGE_ERROR when etcd or the store cannot be read.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import structlog
from kafscale.access.rules import Side, needs_of
from kafscale.fetch.errors import ReadFailure, RequestKind, code_for
from kafscale.fetch.lookup import DENIED, Lookup, PartitionRequest
from kafscale.fetch.offsets import EARLIEST, LATEST, NOWHERE, OffsetFinder, Point, Search
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.clock import Clock
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.storage.task_groups import together
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import list_offsets as api

log = structlog.get_logger(__name__)

NEEDS: Final = needs_of(ApiKey.LIST_OFFSETS, Side.SERVICE)
(DESCRIBE,) = NEEDS

MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
KNOWN_FROM: Final[Mapping[int, int]] = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED: Final = 1
ONE_OFFSET_FROM: Final = 1
OFFSETS_MAX: Final = 1_000
"""In one partition's answer of v0: segments are small here, and there may be very many."""
SEARCHES_MAX: Final = 16
"""Partitions of one request that are searched at once."""


class ListOffsetsHandler:
    def __init__(
        self, *, lookup: Lookup, finder: OffsetFinder, clock: Clock, authorization: Authorization
    ) -> None:
        self._lookup = lookup
        self._finder = finder
        self._clock = clock
        self._authorization = authorization

    async def __call__(self, request: InboundRequest) -> Sequence[Buffer]:
        version = request.meta.api_version
        message = api.decode_request(request.body, version)
        spots = [
            PartitionRequest(
                topic.name, part.partition_index, leader_epoch=part.current_leader_epoch, fresh=True
            )
            for topic in message.topics
            for part in topic.partitions
        ]
        denied_of = partial(self._authorization.of(request.meta).denied, DESCRIBE)
        await self._lookup.open(spots, RequestKind.OFFSETS, denied_of=denied_of)
        parts = [part for topic in message.topics for part in topic.partitions]
        points = await self._points(spots, parts, message.isolation_level, version)
        return answered(request, _response(message, spots, points), api.encode_response)

    async def _points(
        self,
        spots: list[PartitionRequest],
        parts: list[api.ListOffsetsRequestPartition],
        isolation_level: int,
        version: int,
    ) -> list[Point]:
        named = Counter((spot.wanted, spot.partition) for spot in spots)
        points = [NOWHERE] * len(spots)
        at_once = asyncio.Semaphore(SEARCHES_MAX)
        search = self._finder.begin()

        async def find(at: int) -> None:
            async with at_once:
                points[at] = await self._point(spots[at], parts[at], isolation_level, version, search)

        for spot, part in zip(spots, parts, strict=True):
            if spot.error is DENIED:
                continue
            if named[spot.wanted, spot.partition] > 1:
                spot.error = ErrorCode.INVALID_REQUEST
            elif not _knows(part.timestamp, version):
                spot.error = ErrorCode.UNSUPPORTED_VERSION
        await together(find(at) for at, spot in enumerate(spots) if spot.readable)
        return points

    async def _point(
        self,
        spot: PartitionRequest,
        part: api.ListOffsetsRequestPartition,
        isolation_level: int,
        version: int,
        search: Search,
    ) -> Point:
        try:
            if version < ONE_OFFSET_FROM:
                count = min(part.max_num_offsets, OFFSETS_MAX)
                wall_ms = self._clock.wall_ms()
                return await self._finder.before(spot, part.timestamp, count, wall_ms=wall_ms)
            return await self._one_point(spot, part.timestamp, isolation_level == READ_COMMITTED, search)
        except ReadFailure as failure:
            log.warning(
                "offset lookup failed", topic=spot.wanted, partition=spot.partition, reason=str(failure)
            )
            spot.error = code_for(failure, RequestKind.OFFSETS)
            return NOWHERE

    async def _one_point(
        self, spot: PartitionRequest, timestamp: int, committed_only: bool, search: Search
    ) -> Point:
        match timestamp:
            case -1:
                return self._finder.latest(spot, committed_only=committed_only)
            case -2 | -4:
                return await self._finder.earliest(spot)
            case -3:
                return await self._finder.newest(spot, search)
            case -5 | -6:
                return NOWHERE
            case _:
                return await self._finder.at_time(spot, timestamp, search, committed_only=committed_only)


def _knows(timestamp: int, version: int) -> bool:
    """Whether the version has this special timestamp, as Kafka checks it from v1 on."""
    return timestamp >= 0 or version < ONE_OFFSET_FROM or version >= KNOWN_FROM.get(timestamp, version + 1)


def _response(
    message: api.ListOffsetsRequest, spots: list[PartitionRequest], points: list[Point]
) -> api.ListOffsetsResponse:
    answers = zip(spots, points, strict=True)
    return api.ListOffsetsResponse(
        topics=[
            api.ListOffsetsResponseTopic(
                name=topic.name, partitions=[_partition(*next(answers)) for _ in topic.partitions]
            )
            for topic in message.topics
        ]
    )


def _partition(spot: PartitionRequest, point: Point) -> api.ListOffsetsResponsePartition:
    return api.ListOffsetsResponsePartition(
        partition_index=spot.partition,
        error_code=spot.error,
        old_style_offsets=list(point.places),
        timestamp=point.timestamp,
        offset=point.offset,
        leader_epoch=point.epoch,
    )
