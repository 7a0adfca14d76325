"""`kafscale up --internal-tls`: clients see no difference, and only front doors speak for them.

Laws: a process without a front door's certificate of this start gets no request to any service. Only a coordinator ends
transactions, and only produce and coordinators ask for them.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import Message
from kafscale.cli.internal_tls import EphemeralAuthority
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles, plain
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.runtime.transactions.methods import END, JOIN, OVER, Method

from e2e.checkers.history import History
from e2e.harness.cluster import Cluster
from e2e.harness.forged import called, forged
from e2e.harness.load import Load
from e2e.harness.services import until

TOPIC = "secret"
PARTITIONS = 4
CALL_S = 20.0
SERVICES = ("produce", "fetch", "coordinator", "admin", "upkeep")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("tls") / "data",
        scale={"produce": 2, "frontdoor": 2},
        env={
            "KAFSCALE_INTERNAL_TLS": "1",
            "KAFSCALE_NUM_PARTITIONS": str(PARTITIONS),
        },
    )
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


def files_of(cluster: Cluster, role: str) -> PemFiles:
    folder = cluster.data_dir / "run" / "tls"
    return PemFiles(folder / f"{role}.pem", folder / f"{role}.key", folder / "ca.pem")


def test_clients_are_served_and_a_killed_service_comes_back(cluster: Cluster) -> None:
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, History())
    load.start("writer", idempotent=True)
    until("records are acknowledged", lambda: len(load.going_on()) == PARTITIONS)
    cluster.kill_one("produce", 0)
    before = sum(load.going_on().values())
    until("the next one serves", lambda: sum(load.going_on().values()) > before + 500)
    load.stop()
    assert load.errors == []


@pytest.mark.parametrize("role", SERVICES)
def test_who_is_no_front_door_of_this_start_gets_no_answer(
    cluster: Cluster, role: str, tmp_path: Path
) -> None:
    other_start = EphemeralAuthority(tmp_path, datetime.datetime.now(datetime.UTC)).issue("frontdoor")
    with_our_ca = PemFiles(other_start.certificate, other_start.key, files_of(cluster, role).ca)
    (instance, *_) = cluster.inside().instances(role)
    fetch_dial = GrpcIdentity(files_of(cluster, "fetch")).dial(role)
    for dial in (plain, GrpcIdentity(with_our_ca).dial(role), fetch_dial):
        assert forged(instance.address, dial).status is ReplyStatus.REFUSED
    assert "only front doors send requests" in forged(instance.address, fetch_dial).reason


@pytest.mark.parametrize("method", [JOIN, OVER, END], ids=lambda method: method.name)
def test_calls_of_transactions_are_taken_from_the_roles_that_make_them(
    cluster: Cluster, method: Method[Message, Message]
) -> None:
    (instance, *_) = cluster.inside().instances("coordinator")
    for role in (*SERVICES, "frontdoor"):
        dial = GrpcIdentity(files_of(cluster, role)).dial("coordinator")
        code = called(instance.address, dial, method, CALL_S)
        assert (code is not grpc.StatusCode.PERMISSION_DENIED) is (role in method.callers), (role, code)
    assert called(instance.address, plain, method, CALL_S) is grpc.StatusCode.UNAVAILABLE
