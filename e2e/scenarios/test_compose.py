"""The system in containers, by compose.yaml: what `docker compose up` gives a developer.

Law: clients in several languages read at the one published port what others wrote there. Scaled, each instance
works. While idempotent producers run, one container of each kind is killed or stopped, and so are the load balancer,
etcd, the S3 server and redis: no producer sees an error, no acknowledged record is missing, and fsck is clean. `make
compose-test` builds the images first, and starts an engine if none runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafscale.wire.errors import ErrorCode

from e2e.harness.clients import CLIENTS, Client
from e2e.harness.compose import FOUNDATIONS, ROLES, ROOT, Compose, Container, config, docker, require_compose
from e2e.harness.deployment import fsck_by_settings
from e2e.harness.law import goes_on, under_load
from e2e.harness.raw import Raw
from e2e.harness.requests import create
from e2e.harness.services import until

PARTITIONS = 6
PARTITIONS_SCALED = 24  # enough that each of three owners has one, except in one run of five thousand
SCALE = {"produce": 3, "fetch": 2, "frontdoor": 2}
WORK = {
    "frontdoor": "kafscale_frontdoor_requests_total",
    "produce": "kafscale_produce_records_total",
    "fetch": "kafscale_fetch_records_total",
}
LANGUAGES = ("confluent", "kcat", "kafka-python", "java", "franz-go")
RECORDS = 60
WORKS_WITHIN_S = 180.0
SERVICE_BYTES_MAX = 250 << 20
UPKEEP_BYTES_MAX = 480 << 20

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module", autouse=True)
def _engine() -> None:
    require_compose()


@pytest.fixture(scope="module")
def system() -> Iterator[Compose]:
    system = Compose()
    try:
        system.up()
        yield system
    finally:
        system.tear_down()


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_small_and_its_own(role: str) -> None:
    image = json.loads(docker("image", "inspect", f"kafscale-{role}"))[0]
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["Healthcheck"]["Test"][-1] == "/readyz"
    assert image["Size"] <= (UPKEEP_BYTES_MAX if role == "upkeep" else SERVICE_BYTES_MAX)
    listing = (
        "cd /opt/kafscale/lib/python3*/site-packages && ls -d kafscale/* && ls -d pyarrow pip duckdb 2>/dev/null; "
        "command -v gcc pip; find / -xdev -writable -type d ! -path '/tmp*' ! -path '/proc/*' ! -path '/dev/*'; id -u"
    )
    confined = ("--read-only", "--cap-drop", "ALL", "--network", "none", "--tmpfs", "/tmp")
    found = docker(
        "run", "--rm", *confined, "--entrypoint", "/bin/sh", f"kafscale-{role}", "-c", listing
    ).split()
    lake = (
        {"kafscale/lake", "kafscale/upkeep", "pyarrow", "duckdb"}
        if role == "upkeep"
        else {f"kafscale/{role}"}
    )
    libraries = {
        f"kafscale/{each}" for each in ("access", "etcd", "rpc", "runtime", "storage", "store", "wire")
    }
    assert set(found) - libraries == lake | {"10001"}


def test_every_container_is_confined_and_one_port_is_published() -> None:
    services = config()["services"]
    for name in (*ROLES, *FOUNDATIONS, "bucket"):
        service = services[name]
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    for role in ROLES:
        waits = {name: wait["condition"] for name, wait in services[role]["depends_on"].items()}
        assert waits == {"etcd": "service_healthy", "bucket": "service_completed_successfully"}
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert [(port["host_ip"], port["published"]) for port in ports] == [("127.0.0.1", "9092")]


def test_no_container_runs_as_root_or_has_a_capability(system: Compose) -> None:
    for name in (*ROLES, *FOUNDATIONS):
        [container, *_] = system.containers(name)
        status = Path(f"/proc/{container.state['Pid']}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert fields["Uid"].split() == ["10001"] * 4, name
        assert int(fields["CapEff"], 16) == 0, name


def test_the_profiles_find_what_they_mount_and_scrape_every_service() -> None:
    assert {"prometheus", "grafana", "otel-collector", "spark"}.isdisjoint(config()["services"])
    services: dict[str, Any] = config("observe", "spark")["services"]
    assert {"prometheus", "grafana", "otel-collector", "spark"} <= set(services)
    for service in services.values():
        for mount in service.get("volumes", ()):
            assert mount["type"] == "volume" or ROOT.joinpath(mount["source"]).exists(), mount
    scraped = yaml.safe_load((ROOT / "observe" / "prometheus" / "prometheus.yml").read_text())[
        "scrape_configs"
    ]
    names = [name for job in scraped for found in job.get("dns_sd_configs", ()) for name in found["names"]]
    assert sorted(names) == sorted(ROLES)
    assert {services[name]["image"] for name in names} == {f"kafscale-{role}" for role in ROLES}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_client_writes_at_the_published_port_and_all_others_read_it(system: Compose, name: str) -> None:
    writer = client(name)
    writer.require()
    writer.produce(system.bootstrap, f"by-{name}", "gzip", RECORDS)
    for other in map(client, LANGUAGES):
        other.require()
        records = other.consume(system.bootstrap, f"by-{name}", RECORDS)
        assert len({record.key for record in records}) == RECORDS, f"{other.name} of {name}"


def client(name: str) -> Client:
    return next(each for each in CLIENTS if each.name == name)


def topic(system: Compose, name: str, partitions: int) -> str:
    with Raw.to(system.bootstrap) as raw:
        assert create(raw, name, partitions=partitions) == ErrorCode.NONE
    return name


def test_scaled_each_instance_works(system: Compose) -> None:
    system.up(SCALE)
    instances = {role: system.containers(role) for role in SCALE}
    assert {role: len(found) for role, found in instances.items()} == SCALE
    with under_load(system, topic(system, "scaled", PARTITIONS_SCALED), PARTITIONS_SCALED) as load:
        goes_on(load)
        for role in ("frontdoor", "produce"):
            all_work(role, instances[role])
    assert all(each.counted(WORK["fetch"]) > 0 for each in instances["fetch"]), "the law has read everything"


def all_work(role: str, instances: list[Container]) -> None:
    """Returns when each counter is above its value at the start of this call."""
    before = {each: each.counted(WORK[role]) for each in instances}

    def advanced() -> bool:
        return all(each.counted(WORK[role]) > count for each, count in before.items())

    until(f"every {role} works", advanced, WORKS_WITHIN_S)


def test_one_of_each_kind_dies_and_nothing_acknowledged_is_missing(system: Compose) -> None:
    system.up(SCALE)
    with under_load(system, topic(system, "killed", PARTITIONS), PARTITIONS) as load:
        for name in (*ROLES, *FOUNDATIONS):
            system.containers(name)[0].kill_and_wait()
            goes_on(load)
    whole(system)


def test_one_of_each_kind_is_told_to_end_and_nobody_notices(system: Compose) -> None:
    system.up(SCALE)
    with under_load(system, topic(system, "drained", PARTITIONS), PARTITIONS) as load:
        for role in ROLES:
            assert system.containers(role)[0].stop_and_start() == 0, role
            goes_on(load)
    whole(system)


def whole(system: Compose) -> None:
    done = fsck_by_settings(system.env, system.inside().etcd)
    assert done.returncode == 0, done.stdout + done.stderr
