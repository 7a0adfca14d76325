"""OffsetForLeaderEpoch (23): v0-4.   v1 epochs answered · v2 current epoch, KIP-320 · v3 replica id · v4 flexible

The true end of an epoch from the complete history: consumers compare it with their position to find out whether
the log under them was replaced, so a guess makes them reset. Answered after a linearizable read. An epoch above the
current one has no end: -1 and -1, as in Kafka.
Returns TOPIC_AUTHORIZATION_FAILED, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION;
LEADER_NOT_AVAILABLE and KAFKA_STORAGE_ERROR when etcd or the store cannot be read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog
from kafscale.access.rules import Side, needs_of
from kafscale.fetch.errors import ReadFailure, RequestKind, code_for
from kafscale.fetch.lookup import Lookup, PartitionRequest
from kafscale.fetch.offsets import UNDEFINED, EpochEnd, OffsetFinder
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.stream.apis import answered
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.schema import offset_for_leader_epoch as api

log = structlog.get_logger(__name__)

NEEDS: Final = needs_of(ApiKey.OFFSET_FOR_LEADER_EPOCH, Side.SERVICE)
(DESCRIBE,) = NEEDS


class OffsetForLeaderEpochHandler:
    def __init__(self, *, lookup: Lookup, finder: OffsetFinder, authorization: Authorization) -> None:
        self._lookup = lookup
        self._finder = finder
        self._authorization = authorization

    async def __call__(self, request: InboundRequest) -> Sequence[Buffer]:
        message = api.decode_request(request.body, request.meta.api_version)
        spots = [
            PartitionRequest(topic.topic, part.partition, leader_epoch=part.current_leader_epoch, fresh=True)
            for topic in message.topics
            for part in topic.partitions
        ]
        denied_of = partial(self._authorization.of(request.meta).denied, DESCRIBE)
        await self._lookup.open(spots, RequestKind.OFFSETS, denied_of=denied_of)
        epochs = iter([part.leader_epoch for topic in message.topics for part in topic.partitions])
        answers = iter([(spot, await self._end(spot, next(epochs))) for spot in spots])
        response = api.OffsetForLeaderEpochResponse(
            topics=[
                api.OffsetForLeaderEpochResponseTopicResult(
                    topic=topic.topic, partitions=[_partition(*next(answers)) for _ in topic.partitions]
                )
                for topic in message.topics
            ]
        )
        return answered(request, response, api.encode_response)

    async def _end(self, spot: PartitionRequest, epoch: int) -> EpochEnd:
        if not spot.readable or epoch < 0:
            return UNDEFINED
        try:
            return await self._finder.epoch_end(spot, epoch)
        except ReadFailure as failure:
            log.warning(
                "epoch end lookup failed", topic=spot.wanted, partition=spot.partition, reason=str(failure)
            )
            spot.error = code_for(failure, RequestKind.OFFSETS)
            return UNDEFINED


def _partition(spot: PartitionRequest, end: EpochEnd) -> api.OffsetForLeaderEpochResponseEnd:
    return api.OffsetForLeaderEpochResponseEnd(
        error_code=spot.error, partition=spot.partition, leader_epoch=end.epoch, end_offset=end.offset
    )
