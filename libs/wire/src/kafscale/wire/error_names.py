"""What Kafka calls an error code: the name that labels, logs and traces show."""

from typing import Final

from kafscale.wire.errors import ErrorCode

_NAMES: Final = {int(code): code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """Such as `NOT_LEADER_OR_FOLLOWER`; the number of a code that is not known."""
    return _NAMES.get(code, str(code))
