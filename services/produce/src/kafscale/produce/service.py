"""The gRPC servicer for other produce instances: proto to values, nothing decided here."""

from __future__ import annotations

import grpc.aio
from kafscale.produce.ownership import Ownership
from kafscale.rpc.v1 import produce_pb2, produce_pb2_grpc
from kafscale.storage.keys import TopicId

OFFERED_MAX = 10_000


class OwnershipService(produce_pb2_grpc.OwnershipServicer):
    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    def add_to(self, server: grpc.aio.Server) -> None:
        produce_pb2_grpc.add_OwnershipServicer_to_server(self, server)  # type: ignore[no-untyped-call]

    async def Offer(
        self,
        request: produce_pb2.OfferRequest,
        context: grpc.aio.ServicerContext[produce_pb2.OfferRequest, produce_pb2.OfferResponse],
    ) -> produce_pb2.OfferResponse:
        accepted = 0
        for offered in request.partitions[:OFFERED_MAX]:
            accepted += self._ownership.offered(TopicId(offered.topic_id), offered.partition)
        return produce_pb2.OfferResponse(accepted=accepted)
