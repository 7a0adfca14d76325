"""The bucket is made where there is none, and made once."""

from __future__ import annotations

import uuid

import pytest
from kafscale.runtime.create_bucket import make
from kafscale.runtime.dependencies import open_object_store
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import read_settings
from kafscale.storage.objects import StoreRefused
from kafscale.testkit.seaweed import SeaweedServer


async def test_a_bucket_that_is_missing_is_made_once(
    seaweed: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = seaweed.s3_config()
    for name, value in {
        "S3_ENDPOINT": config.endpoint,
        "S3_BUCKET": f"made-{uuid.uuid4().hex}",
        "S3_ACCESS_KEY_ID": config.access_key_id,
        "S3_SECRET_ACCESS_KEY": config.secret_access_key,
    }.items():
        monkeypatch.setenv(f"KAFSCALE_{name}", value or "")
    settings = read_settings(ServiceSettings)
    store = open_object_store(settings)
    with pytest.raises(StoreRefused, match="does not exist"):
        await store.probe()
    await make(settings)
    await store.put("a", (b"b",))
    await make(settings)
    assert await store.get("a") == b"b"
    await store.close()
