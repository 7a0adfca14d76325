"""etcd or the object store is away: at the start, and under load; and a disk that is full.

Law: a service without etcd waits, reports that at /readyz and in its log, and serves once it is available. So does a
service without the store, if it uses the store. If one of them fails under load, nothing acknowledged is lost, no
producer sees an error, and all continue when it is back. A full disk is KAFKA_STORAGE_ERROR until there is room.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafscale.storage.rights.objects import StoreUse, use_of
from kafscale.testkit.seaweed import require_weed
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import produce

from e2e.harness.cluster import Cluster
from e2e.harness.deployment import Deployment
from e2e.harness.law import goes_on, nap, under_load
from e2e.harness.raw import Raw
from e2e.harness.services import Service, until

PARTITIONS = 3
AWAY_S = 10.0
CHAOS_CYCLES = int(os.environ.get("CYCLES", "20"))
DISK_BYTES = 64 << 20
PRODUCE_V = 9

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Only the services run at first; the first test brings the rest."""
    require_weed()
    deployment = Deployment(tmp_path_factory.mktemp("outages"), PARTITIONS)
    deployment.start_services()
    yield deployment
    deployment.kill()


def waits_for(service: Service, what: str) -> None:
    def says() -> bool:
        status, why = service.readiness()
        return status == 503 and what in why

    def logs() -> bool:
        return any(
            '"dependency unavailable"' in line and what in line
            for line in service.log.read_text().splitlines()
        )

    until(f"{service.role} says that it waits for {what}", says)
    until(f"{service.role} logs that it waits for {what}", logs)


def test_services_wait_for_etcd_and_for_the_store_and_then_serve(deployment: Deployment) -> None:
    """Front doors and coordinators send the store nothing."""
    for service in deployment.services.values():
        waits_for(service, f"etcd at {deployment.etcd.endpoint}")
    deployment.start_etcd()
    for role, service in deployment.services.items():
        if use_of(role) is StoreUse.NONE:
            service.wait_ready()
        else:
            waits_for(service, "bucket")
    deployment.start_s3()
    deployment.wait_ready()
    with under_load(deployment, "served", PARTITIONS):
        pass


@contextmanager
def etcd_away(deployment: Deployment) -> Iterator[None]:
    deployment.etcd.kill()
    yield
    deployment.start_etcd()


@contextmanager
def s3_away(deployment: Deployment) -> Iterator[None]:
    deployment.s3.kill()
    yield
    deployment.start_s3()


def test_etcd_goes_away_under_load_and_comes_back(deployment: Deployment) -> None:
    with under_load(deployment, "without-etcd", PARTITIONS), etcd_away(deployment):
        nap(AWAY_S)
    agrees(deployment)


def test_the_store_goes_away_under_load_and_comes_back(deployment: Deployment) -> None:
    with under_load(deployment, "without-s3", PARTITIONS), s3_away(deployment):
        nap(AWAY_S)
    agrees(deployment)


def agrees(deployment: Deployment) -> None:
    done = deployment.fsck()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_both_go_away_again_and_again(deployment: Deployment) -> None:
    with under_load(deployment, "without-either", PARTITIONS) as load:
        for cycle in range(CHAOS_CYCLES):
            away = etcd_away if cycle % 2 else s3_away
            with away(deployment):
                nap(AWAY_S * (1 + cycle % 3))
            goes_on(load)
    agrees(deployment)


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose objects lie on a disk of a few megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    objects = tmp_path / "objects"
    objects.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "kafscale-test", objects],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    cluster = Cluster(data_dir=tmp_path, env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
        subprocess.run(["umount", objects], check=True)


def test_a_full_disk_is_a_storage_error_that_passes(small_disk: Cluster) -> None:
    filler = small_disk.data_dir / "objects" / "filler"
    known = Producer({"bootstrap.servers": small_disk.bootstrap, "log_level": 0})
    known.produce("full-too", b"the topic is made by this")
    assert known.flush(60) == 0
    with under_load(small_disk, "full", PARTITIONS) as load:
        fill(filler)  # may take longer than a connection may be without a request
        with Raw.to(small_disk.bootstrap) as raw:
            until("a full disk is said", lambda: send(raw, "full-too") == ErrorCode.KAFKA_STORAGE_ERROR)
            filler.unlink()
            until("there is room again", lambda: send(raw, "full-too") == ErrorCode.NONE)
        goes_on(load)
    done = small_disk.fsck()
    assert done.returncode == 0, done.stdout + done.stderr


def fill(filler: Path) -> None:
    """Until not a byte more fits."""
    block = bytes(1 << 16)
    with filler.open("wb", buffering=0) as disk, contextlib.suppress(OSError):
        while disk.write(block):
            pass
    assert os.statvfs(filler).f_bavail == 0


def send(raw: Raw, topic: str) -> int:
    """One record of 100 KB to partition 0; the error code."""
    batch = build_batch([Record(timestamp=1_700_000_000_000, value=bytes(100_000))])
    part = produce.ProduceRequestPartition(index=0, records=batch)
    message = produce.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[produce.ProduceRequestTopic(name=topic, partition_data=[part])],
    )
    answer = produce.decode_response(
        raw.ask(ApiKey.PRODUCE, PRODUCE_V, produce.encode_request(message, PRODUCE_V)), PRODUCE_V
    )
    return answer.responses[0].partition_responses[0].error_code
