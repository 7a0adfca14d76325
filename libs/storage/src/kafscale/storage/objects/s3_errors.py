"""Failures of S3 and of the connection to it, as errors of the port.

Only refusals before S3 reads the object are definite. After a lost connection, a timeout, a request to retry later
(409, 429, 5xx) or an unknown answer, the request may have been applied.
"""

from typing import Final

import aiohttp
from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.port import (
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)
from kafscale.storage.objects.progress import TooSlow

FAILURES: Final = (aiohttp.ClientError, TimeoutError, OSError)

_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)
_LATER: Final = frozenset({"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"})
_STATUS_OF: Final = {
    "PreconditionFailed": 412,
    "NoSuchKey": 404,
    "AccessDenied": 403,
    "ConditionalRequestConflict": 409,
}
"""Any other code is an unknown outcome: the same key may be deleted again."""
_FULL: Final = frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"})


def from_exception(error: Exception, *, key: str) -> StoreError:
    """The port's error for one of FAILURES."""
    failure = StoreSlow if isinstance(error, TooSlow) else StoreUnavailable
    return failure(key, f"{type(error).__name__}: {error}")


def from_code(code: str, message: str, *, key: str, config: S3Config) -> StoreError:
    """The port's error for what an answer says of one of many keys, where no status comes with it."""
    return from_answer(_STATUS_OF.get(code, 500), code, message, key=key, config=config)


def from_answer(status: int, code: str, message: str, *, key: str, config: S3Config) -> StoreError:
    """The port's error for an answer of S3 that is no success."""
    reason = f"{status} {code}: {message}"
    if code == "NoSuchBucket":
        place = config.endpoint or "AWS"
        return StoreRefused(key, f"the bucket {config.bucket!r} does not exist at {place}; create it first")
    if code in _FULL or status == 507:
        return StoreFull(key, reason)
    if status == 412:
        return PreconditionFailed(key, reason)
    if status == 404:
        return ObjectNotFound(key, reason)
    if code in _LATER or status in (409, 429) or status >= 500:
        return StoreUnavailable(key, reason)
    if code in _CREDENTIALS or status in (401, 403):
        text = f"credentials or permissions for the bucket {config.bucket!r} are wrong: {reason}"
        return StoreRefused(key, text)
    if 300 <= status < 400:
        return StoreRefused(
            key, f"the bucket {config.bucket!r} is not in the region {config.region}: {reason}"
        )
    return StoreRefused(key, reason)
