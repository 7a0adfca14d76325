"""How the cluster of a target is opened, and what its loss is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest
from kafscale.operations import clusters
from kafscale.operations.clusters import NoCluster, opened_etcd
from kafscale.operations.datadir import DataDir, Endpoints
from kafscale.operations.target import StoreKind, Target
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage import objects
from kafscale.storage.etcd.client import EtcdUnknown
from kafscale.storage.etcd.errors import UnknownKind


@pytest.mark.parametrize(("asked", "opens"), [(None, "running"), ("other", "other")])
@pytest.mark.parametrize("by", ["environment", "directory"])
async def test_the_option_names_the_cluster_whatever_else_does(
    asked: str | None,
    opens: str,
    by: str,
    tmp_path: Path,
    etcd_server: EtcdProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, url = DataDir(tmp_path), etcd_server.endpoint
    objects = tmp_path / "objects"
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", url)
    monkeypatch.setenv("KAFSCALE_OBJECT_DIR", str(objects))
    monkeypatch.setenv("KAFSCALE_NAMESPACE", "running" if by == "environment" else "hidden")
    data.acquire()
    try:
        data.publish(
            Endpoints(bootstrap_servers="x:1", etcd=url, namespace="running", object_dir=str(objects), pid=1)
        )
        folder = tmp_path if by == "directory" else None
        async with clusters.opened(Target(folder, asked), lambda _: None) as cluster:
            assert cluster.settings.namespace == opens
    finally:
        data.release()


async def lose(url: str, trouble: Exception, *, in_a_task: bool) -> None:
    async def fail() -> None:
        raise trouble

    async with opened_etcd(ServiceSettings(etcd_endpoints=(url,))):
        if not in_a_task:
            await fail()
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_an_etcd_that_goes_away_meanwhile_is_told_too(
    etcd_server: EtcdProcess, in_a_task: bool
) -> None:
    away = EtcdUnknown(UnknownKind.UNAVAILABLE, "gone")
    with pytest.raises(NoCluster, match="does not answer any more; try again when it is back"):
        await lose(etcd_server.endpoint, away, in_a_task=in_a_task)


async def test_other_trouble_of_tasks_is_left_as_it_is(etcd_server: EtcdProcess) -> None:
    with pytest.raises(ExceptionGroup) as group:
        await lose(etcd_server.endpoint, ValueError("ours"), in_a_task=True)
    assert group.value.subgroup(ValueError) is not None


def test_the_command_offers_every_store_that_outlives_a_process() -> None:
    assert {*StoreKind} == {*get_args(objects.StoreKind)} - {"memory"}
