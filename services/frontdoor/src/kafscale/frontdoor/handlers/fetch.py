"""Fetch (1): v0-18.   v4 record batches · v7 sessions · v12 flexible, diverging epochs · v13 topic ids
· v15 replica state
One fetch instance may answer everything, so a request that only one is to get goes there as it came, and
its answer goes to the client while it arrives, unless quotas are set (they change the answer's head). Else
it is split (see fetch_split.py). No fetch sessions exist: a request that continues one goes to any instance unsplit,
which answers FETCH_SESSION_ID_NOT_FOUND, and the client begins anew. While no instance is there:
NOT_LEADER_OR_FOLLOWER, on which consumers read the metadata again and come back. A connection has one Fetch at
a time (fetch_turns.py), and where memory is short it is asked for fewer bytes than the client would take. A client over
its quota gets an empty answer with a throttle time (quotas/client_quotas.py). A wait ends with the session of the
client's login. In Kafka, records that are written after that still reach the client.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from kafscale.frontdoor.api import Api, Area, Backend, Forward, Own
from kafscale.frontdoor.backends import Channel
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.fetch_split import TOPIC_IDS_FROM, SplitFetch, Wanted, unserved
from kafscale.frontdoor.parts import Parts
from kafscale.runtime.stream.options import Stream
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.schema import fetch as schema
from kafscale.wire.schema.fetch import FetchRequest

MAX_BYTES_FROM: Final = 3
REPLICA_STATE_FROM: Final = 15
NO_SESSION: Final = 0
WAIT_MS_MAX: Final = 300_000
UNLIMITED: Final = 0x7FFFFFFF
GRACE_MS: Final = 10_000


def refuse(body: memoryview, version: int, code: ErrorCode) -> list[Buffer]:
    request = schema.decode_request(body, version)
    if request.session_id != NO_SESSION:
        return schema.encode_response(
            schema.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)), version
        )
    topics = [
        schema.FetchResponseTopic(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[unserved(entry.partition, code) for entry in topic.partitions],
        )
        for topic in request.topics
    ]
    return schema.encode_response(schema.FetchResponse(responses=topics), version)


FORWARD: Final = Forward(
    unavailable=ErrorCode.NOT_LEADER_OR_FOLLOWER, carries_revision=True, cut_through=True
)


def _wait_at(version: int) -> int:
    """The offset of the wait: it is the first field from v15 on, and behind the replica id before."""
    return 0 if version >= REPLICA_STATE_FROM else 4


def max_wait_ms(body: memoryview, version: int) -> int:
    at = _wait_at(version)
    wait_ms = int.from_bytes(body[at : at + 4], "big", signed=True)
    return min(max(wait_ms, 0), WAIT_MS_MAX)


def with_bounded_wait(body: memoryview, version: int, wait_ms_max: int) -> memoryview:
    """The same request with a wait of at most `wait_ms_max`, and at least 0.

    A client that sends a negative wait does not wait. To a fetch service it would say how long the client has waited.
    """
    at = _wait_at(version)
    wanted = int.from_bytes(body[at : at + 4], "big", signed=True)
    bounded = max(0, min(wanted, wait_ms_max))
    if bounded == wanted:
        return body
    return memoryview(b"".join((body[:at], bounded.to_bytes(4, "big"), body[at + 4 :])))


def max_bytes_at(version: int) -> int | None:
    """Where a request says how large its answer may be: behind the wait and min_bytes. Before v3 it does not."""
    if version < MAX_BYTES_FROM:
        return None
    return 8 if version >= REPLICA_STATE_FROM else 12


def max_bytes(body: memoryview, version: int) -> int:
    at = max_bytes_at(version)
    return UNLIMITED if at is None else int.from_bytes(body[at : at + 4], "big", signed=True)


def limited(body: memoryview, version: int, granted_bytes: int) -> list[Buffer]:
    """The same request with `granted_bytes` as its limit. Before v3 a request has no such limit, and stays as it is."""
    at = max_bytes_at(version)
    if at is None or granted_bytes >= max_bytes(body, version):
        return [body]
    return [body[:at], granted_bytes.to_bytes(4, "big"), body[at + 4 :]]


class FetchHandler:
    def __init__(self, parts: Parts) -> None:
        self._forwarder = parts.forwarder
        self._turns = parts.turns
        self._metering = parts.metering
        self._routing = parts.routing
        self._topics = parts.topics
        self._pool = self._routing.pool(Backend.FETCH)

    def __call__(self, exchange: Exchange) -> None:
        body, version = exchange.request.body, exchange.version
        bytes_max = max_bytes(body, version)
        if exchange.usage is not None:
            bytes_max = self._metering.fetch_bytes(exchange, bytes_max)
            if not bytes_max:  # over its quota
                exchange.answer(schema.encode_response(schema.FetchResponse(), version))
                return
        self._turns.begin(exchange, bytes_max, self._start)

    def _start(self, exchange: Exchange, granted_bytes: int) -> None:
        version, now_ms = exchange.version, self._forwarder.clock.now_ms()
        ends_ms = exchange.caller.session_ends_ms
        left_ms = WAIT_MS_MAX if ends_ms is None else ends_ms - now_ms
        body = with_bounded_wait(exchange.request.body, version, left_ms)
        exchange.deadline_ms = now_ms + max_wait_ms(body, version) + GRACE_MS
        if len(self._pool.ready) <= 1:
            self._forward(exchange, body, self._any, granted_bytes)
            return
        try:
            message = schema.decode_request(body, version)
        except WireError as error:
            exchange.hang_up(str(error))
            return
        wanted = self._by_instance(message, version)
        if not wanted or message.session_id != NO_SESSION:
            self._forward(exchange, body, self._any, granted_bytes)
        elif len(wanted) == 1:
            channel = next(iter(wanted))
            self._forward(exchange, body, partial(self._this, channel), granted_bytes)
        else:
            message.max_bytes = min(message.max_bytes, granted_bytes)
            split = exchange.call = SplitFetch(self._forwarder, exchange, message, wanted)
            split.start()

    def _forward(
        self,
        exchange: Exchange,
        body: memoryview,
        choose: Callable[[], Channel | None],
        granted_bytes: int,
    ) -> None:
        asked = limited(body, exchange.version, granted_bytes)
        self._forwarder.forward(exchange, FORWARD, choose=choose, body=asked)

    def _any(self) -> Channel | None:
        ready = self._pool.ready
        return ready[0] if ready else None

    def _this(self, channel: Channel) -> Channel | None:
        return channel if self._pool.has(channel) and channel.instance.is_ready else self._any()

    def _by_instance(self, message: FetchRequest, version: int) -> dict[Channel, list[Wanted]]:
        wanted: dict[Channel, list[Wanted]] = {}
        for topic in message.topics:
            known = (
                self._topics.by_id(topic.topic_id)
                if version >= TOPIC_IDS_FROM
                else self._topics.by_name(topic.topic)
            )
            for entry in topic.partitions:
                channel = self._routing.fetcher(known.topic_id, entry.partition) if known else self._any()
                if channel is not None:
                    wanted.setdefault(channel, []).append((topic, entry))
        return wanted


API: Final = Api(
    key=ApiKey.FETCH,
    versions=(0, 18),
    backend=Backend.FETCH,
    dispatch=Own(FetchHandler),
    refuse=refuse,
    stream=Stream.BULK,
    reads=Area.RECORDS,
)
