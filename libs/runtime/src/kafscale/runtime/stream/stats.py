"""What happened on a service's streams of one kind, as plain integers: counting costs nothing on the hot path."""

from dataclasses import dataclass


@dataclass(slots=True)
class StreamStats:
    requests: int = 0
    replies: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cancelled: int = 0
    expired: int = 0
    refused: int = 0
    failed: int = 0
    too_large: int = 0
    pauses: int = 0
