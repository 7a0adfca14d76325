"""gRPC's settings for streams of large raw messages, as measured in bench/streams.py.

Large HTTP/2 frames and reads cut the work per megabyte; retries are off because nothing here may be
sent twice; each stream has its own TCP connection, so that bulk bytes never delay control calls.
"""

from enum import StrEnum
from typing import Final


class Stream(StrEnum):
    """Records and small calls have separate streams, so that a large frame never delays a heartbeat."""

    BULK = "bulk"
    CONTROL = "control"


SERVICE: Final = "kafscale.rpc.v1.KafkaStream"
METHODS: Final = {Stream.BULK: f"/{SERVICE}/Bulk", Stream.CONTROL: f"/{SERVICE}/Control"}
# A service's first word on a stream that it will serve. A refused call shows empty metadata instead.
ACCEPTED: Final = (("kafscale-stream", "1"),)
# What a front door reads beyond the first layout, as it says when it opens a stream. Older services ignore it.
READS_SIZES: Final = ("kafscale-reads-sizes", "1")
READS_LEAVING: Final = ("kafscale-reads-leaving", "1")
READS: Final = (READS_SIZES, READS_LEAVING)

# A peer that does not respond (stopped, unplugged) is given up after the sum of these.
KEEPALIVE_TIME_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000

# A connection that does not end its handshake is closed after this time. A front door ends it after 2 s (ClientLimits).
HANDSHAKE_TIMEOUT_MS: Final = 4_000
# The most connections to a process: some 20 MB if all are half-open. A front door has two to each service.
CONNECTIONS_MAX: Final = 1_024

_MIB: Final = 1 << 20
_MESSAGE_BYTES_MAX: Final = 4 * _MIB

_TRANSPORT: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_send_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
    ("grpc.http2.max_frame_size", 16_777_215),
    ("grpc.http2.lookahead_bytes", 8 * _MIB),
    ("grpc.http2.write_buffer_size", 8 * _MIB),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.experimental.tcp_read_chunk_size", _MIB),
    ("grpc.experimental.tcp_min_read_chunk_size", 64 << 10),
    ("grpc.experimental.tcp_max_read_chunk_size", 4 * _MIB),
)


def keepalive(time_ms: int, timeout_ms: int) -> tuple[tuple[str, int], ...]:
    """Both timeouts are needed: the last is a minute by default, and is the one that counts."""
    return (
        ("grpc.keepalive_time_ms", time_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),
    )


CHANNEL_OPTIONS: Final = (
    *_TRANSPORT,
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # No pauses between attempts, as a channel makes only one. gRPC would take the shortest for the time limit of TCP
    # connect and TLS handshake (grpc #12830); ClientLimits has the limit.
)

SERVER_OPTIONS: Final = (
    *_TRANSPORT,
    *keepalive(KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS),
    # A port that another process holds is an error, not a share of its connections.
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
)
