"""The endpoint and the credentials of S3 from the settings. What they omit is found as AWS's own tools find it.

aiobotocore is imported only for that: it is half of the start time of a service, and 40 MB of memory.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kafscale.storage.objects.config import S3Config
from kafscale.storage.objects.errors import StoreError, StoreRefused, StoreUnavailable
from kafscale.storage.objects.s3_errors import from_answer
from kafscale.storage.objects.s3_signing import Credentials


@dataclass(frozen=True, slots=True)
class Session:
    """`credentials` is asked for each request, as they may be renewed. `ca_bundle`: a file, where not the system's."""

    endpoint: str
    credentials: Callable[[], Awaitable[Credentials]]
    ca_bundle: str | None


async def open_session(config: S3Config) -> Session:
    """Raises StoreError if a value is found nowhere, or if its source does not answer."""
    fixed = _fixed(config)
    if config.endpoint is not None and fixed is not None:
        return Session(config.endpoint, fixed, os.environ.get("AWS_CA_BUNDLE"))
    return await _discovered(config, fixed)


def _fixed(config: S3Config) -> Callable[[], Awaitable[Credentials]] | None:
    if config.access_key_id is None or config.secret_access_key is None:
        return None
    found = Credentials(config.access_key_id, config.secret_access_key)

    async def from_config() -> Credentials:
        return found

    return from_config


async def _discovered(config: S3Config, fixed: Callable[[], Awaitable[Credentials]] | None) -> Session:
    from aiobotocore.session import get_session  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    session = get_session()
    try:
        endpoint = config.endpoint or await _endpoint(config, session)
        credentials = fixed or _renewed(await session.get_credentials(), config)
        return Session(endpoint, credentials, session.get_config_variable("ca_bundle"))
    except (BotoCoreError, ClientError) as error:
        raise _store_error(error, config) from error


async def _endpoint(config: S3Config, session: Any) -> str:
    """AWS's for the region."""
    async with session.create_client(
        "s3",
        region_name=config.region,
        aws_access_key_id=config.access_key_id,
        aws_secret_access_key=config.secret_access_key,
    ) as client:
        found: str = client.meta.endpoint_url
        return found


def _renewed(found: Any, config: S3Config) -> Callable[[], Awaitable[Credentials]]:
    """What AWS's usual places hold, renewed as it runs out."""
    from botocore.exceptions import BotoCoreError, ClientError

    if found is None:
        raise StoreRefused(
            "", "no S3 credentials: neither in the settings nor where AWS's tools look for them"
        )

    async def from_session() -> Credentials:
        try:
            frozen = await found.get_frozen_credentials()
        except (BotoCoreError, ClientError) as error:
            raise _store_error(error, config) from error
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token)

    return from_session


def _store_error(error: Exception, config: S3Config) -> StoreError:
    """A failure of botocore as an error of the port."""
    from botocore.exceptions import (
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )

    if isinstance(error, ClientError):
        answer = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return from_answer(
            status, str(answer.get("Code", "")), str(answer.get("Message", "")), key="", config=config
        )
    if isinstance(error, NoCredentialsError | PartialCredentialsError | ParamValidationError):
        return StoreRefused("", str(error))
    return StoreUnavailable("", f"{type(error).__name__}: {error}")
