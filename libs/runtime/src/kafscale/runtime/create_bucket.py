"""`python -m kafscale.runtime.create_bucket`: creates the bucket of KAFSCALE_S3_* if it is missing, then exits.

Services never create a bucket: a missing bucket is more often a wrong name. In a deployment whose store begins empty,
such as compose, this module runs once before them.
"""

import asyncio
import sys
from dataclasses import replace
from typing import Final

import structlog
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.dependencies import store_config, store_need, wait_for
from kafscale.runtime.logs import configure_logs
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import load_settings
from kafscale.storage.objects import StoreUnsuitable, open_store

log = structlog.get_logger("kafscale.bucket")

TIMEOUT_S: Final = 300.0


async def make(settings: ServiceSettings) -> None:
    """Raises TimeoutError if the store did not answer in time, and StoreUnsuitable if it would lose data."""
    config = store_config(settings)
    assert config.s3 is not None, "the S3 settings have defaults"
    store = open_store(replace(config, s3=replace(config.s3, create_bucket=True)))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await wait_for(store_need(settings, store), clock=SystemClock(), say=lambda _: None)
    finally:
        await store.close()


def main() -> int:
    settings = load_settings(ServiceSettings)
    configure_logs(level=settings.log_level, form=settings.log_format, service="bucket")
    try:
        asyncio.run(make(settings))
    except (TimeoutError, StoreUnsuitable) as trouble:
        log.error(
            "bucket unavailable", why=str(trouble) or f"the store did not answer within {TIMEOUT_S:.0f} s"
        )
        return 1
    log.info("bucket available", bucket=settings.s3_bucket)
    return 0


if __name__ == "__main__":
    sys.exit(main())
