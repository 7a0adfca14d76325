"""Kafka's name of an error code, for labels, logs and traces."""

from typing import Final

from kafscale.wire.errors import ErrorCode

_NAMES: Final = {int(code): code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """Such as `NOT_LEADER_OR_FOLLOWER`; for an unknown code its number."""
    return _NAMES.get(code, str(code))
