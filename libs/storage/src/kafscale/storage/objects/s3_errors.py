"""What S3 and the way to it answer when they do not serve, in the words of the port.

Definite are only refusals that S3 makes before it looks at the object. Whatever was cut off, timed out, was
told to come back later (409, 429, 5xx) or is not understood may have been applied.
"""

from typing import Any, Final

import aiohttp
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from kafscale.storage.objects.errors import (
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

FAILURES: Final = (ClientError, BotoCoreError, aiohttp.ClientError, TimeoutError, OSError)

_CREDENTIALS: Final = frozenset(
    {
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "401",
        "403",
    }
)
_LATER: Final = frozenset({"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"})
_FULL: Final = frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull"})


def translate(error: Exception, *, key: str, bucket: str, endpoint: str | None) -> StoreError:
    """The port's error for one of FAILURES."""
    if isinstance(error, ClientError):
        return _from_answer(error.response, key=key, bucket=bucket, endpoint=endpoint)
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ParamValidationError):
        return StoreRefused(key, str(error))
    return StoreUnavailable(key, f"{type(error).__name__}: {error}")


def _from_answer(answer: Any, *, key: str, bucket: str, endpoint: str | None) -> StoreError:
    code = str(answer.get("Error", {}).get("Code", ""))
    message = str(answer.get("Error", {}).get("Message", ""))
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    reason = f"{status} {code}: {message}"
    if code == "NoSuchBucket":
        return StoreRefused(
            key, f"the bucket {bucket!r} does not exist at {endpoint or 'AWS'}; create it first"
        )
    if code in _FULL or status == 507:
        return StoreFull(key, reason)
    if status == 412 or code == "PreconditionFailed":
        return PreconditionFailed(key, reason)
    if status == 404:
        return ObjectNotFound(key, reason)
    if code in _LATER or status in (409, 429) or status >= 500 or status < 400:
        return StoreUnavailable(key, reason)
    if code in _CREDENTIALS or status in (401, 403):
        return StoreRefused(key, f"credentials or permissions for the bucket {bucket!r} are wrong: {reason}")
    return StoreRefused(key, reason)
