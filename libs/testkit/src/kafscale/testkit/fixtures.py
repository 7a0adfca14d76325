"""pytest fixtures for real stores and servers; long searches are kept for `-m deep`, and no property has a deadline."""

import pytest
from hypothesis import settings
from kafscale.testkit.etcd import etcd, etcd_server, keyspace
from kafscale.testkit.objects import (
    directory_attributes,
    directory_store,
    memory_store,
    namespace,
    object_store,
    object_store_kind,
    s3_store,
)
from kafscale.testkit.redis import redis_server
from kafscale.testkit.seaweed import seaweed

__all__ = [
    "directory_attributes",
    "directory_store",
    "etcd",
    "etcd_server",
    "keyspace",
    "memory_store",
    "namespace",
    "object_store",
    "object_store_kind",
    "redis_server",
    "s3_store",
    "seaweed",
]

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")  # a busy machine is no finding


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("deep")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
