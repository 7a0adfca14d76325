"""What is counted of each request: by API, with the errors that its answer holds, by Kafka's names."""

from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.apis import ApiMetrics, answered
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.options import Stream
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema.heartbeat import HeartbeatResponse, encode_response
from stream_harness import client_of, meta, on_uvloop, running

HEARTBEAT = int(ApiKey.HEARTBEAT)
FIND = int(ApiKey.FIND_COORDINATOR)
REBALANCE_IN_PROGRESS = 27


@on_uvloop
async def test_requests_their_time_and_their_errors_are_counted_by_api() -> None:
    def beat(request: InboundRequest) -> None:
        answer = HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS if request.body else 0)
        request.reply(answered(request, answer, encode_response))

    metrics = Metrics("coordinator")
    apis = ApiMetrics(metrics, (HEARTBEAT, FIND))
    async with (
        running({}, {HEARTBEAT: beat}) as service,
        client_of(service.target, Stream.CONTROL) as client,
    ):
        await client.send(meta(HEARTBEAT), (b"before anything is counted",)).future
        service.streams.count(apis)
        for body in (b"", b"moved", b"moved"):
            await client.send(meta(HEARTBEAT), (body,)).future
    values = {reading.name: dict(reading.values) for reading in metrics.read() if reading.values}
    assert values["kafscale_coordinator_requests_total"] == {("Heartbeat",): 3, ("FindCoordinator",): 0}
    assert values["kafscale_coordinator_errors_total"] == {("Heartbeat", "REBALANCE_IN_PROGRESS"): 2}
    assert apis.by_key[HEARTBEAT].seconds.counts != apis.by_key[FIND].seconds.counts
    assert sum(apis.by_key[HEARTBEAT].seconds.counts) == 3
