"""The overlay `dev` in a real Kubernetes: its pods are scaled, deleted, killed, rolled and evicted under load.

Laws: `harness/kubernetes/traffic.py`. The bounds are some times the figures of docs/kubernetes.md, and below the 30 s
that an old address in a cache costs.
"""

from __future__ import annotations

import logging
import time
from typing import Final

import pytest

from e2e.checkers.manifests.objects import SERVICES
from e2e.harness.clients import NEW_CLIENT
from e2e.harness.kubernetes.deployed import WORKLOADS, Deployed, container_of, name_of
from e2e.harness.kubernetes.traffic import Bounds, traffic
from e2e.harness.law import goes_on
from e2e.harness.manifests import ROOT
from e2e.harness.services import until

READY_WITHIN_S: Final = 180.0
RECORDS: Final = 200
SCALED: Final = Bounds(silence_s=5, group_silence_s=10, errors=0)
DELETED: Final = Bounds(silence_s=10, group_silence_s=15, errors=20)
KILLED: Final = Bounds(silence_s=25, group_silence_s=25, errors=40)
ROLLED: Final = Bounds(silence_s=10, group_silence_s=15, errors=40)
STORES_RESTARTED: Final = Bounds(silence_s=25, group_silence_s=25, errors=20)
UNNOTICED: Final = Bounds(silence_s=5, group_silence_s=10, errors=0)
CPU_FOR_MORE, CPU_FOR_FEWER = "20m", "2"
"""Per pod: with the first, the load asks for a second pod, and with the other, one is enough."""
AUTOSCALED_WITHIN_S: Final = 180.0

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1_800)]
log = logging.getLogger(__name__)


def test_all_pods_are_ready_without_a_restart(dev: Deployed) -> None:
    pods = [pod for service in SERVICES for pod in dev.pods(service)]
    assert len(pods) >= len(SERVICES)
    assert [name_of(pod) for pod in pods if container_of(pod)["restartCount"]] == []


def test_a_client_produces_and_consumes_by_the_address_of_the_documentation(dev: Deployed) -> None:
    NEW_CLIENT.produce(dev.bootstrap, "first", "gzip", RECORDS)
    assert len(NEW_CLIENT.consume(dev.bootstrap, "first", RECORDS)) == RECORDS


def test_applying_it_again_changes_nothing(dev: Deployed) -> None:
    def specified() -> dict[str, int]:
        """Each object's count of changes of its specification."""
        listed = dev.node.kubectl.within(dev.namespace).items(
            "deployments,statefulsets,services,networkpolicies"
        )
        return {f"{each['kind']} {name_of(each)}": each["metadata"].get("generation", 0) for each in listed}

    before = specified()
    pods = {name_of(pod) for service in SERVICES for pod in dev.pods(service)}
    dev.kubectl("apply", "--kustomize", str(ROOT / "overlays" / "dev"))
    assert specified() == before
    assert {name_of(pod) for service in SERVICES for pod in dev.pods(service)} == pods


def test_etcd_is_repaired_in_a_pod_as_the_documentation_says(dev: Deployed) -> None:
    said = dev.kubectl(
        "exec", "deployment/kafscale-fetch", "--", "python", "-m", "kafscale.runtime.etcd_repair"
    )
    assert "etcd accepts writes" in said


def test_nobody_notices_that_autoscalers_add_and_remove_a_pod(dev: Deployed) -> None:
    autoscaler = "kafscale-produce"
    policy = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Pods", "value": 3, "periodSeconds": 15}],
    }
    quick = {"scaleUp": policy, "scaleDown": policy}

    def target(cpu: str) -> None:
        value = {"type": "AverageValue", "averageValue": cpu}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": value}}
        dev.patch("horizontalpodautoscaler", autoscaler, {"spec": {"metrics": [metric], "behavior": quick}})

    with traffic(dev.bootstrap, "autoscaled", UNNOTICED) as load:
        target(CPU_FOR_MORE)
        until("a second pod of produce", lambda: len(dev.pods("produce")) > 1, AUTOSCALED_WITHIN_S, 1)
        dev.wait_ready(WORKLOADS["produce"])
        goes_on(load)
        target(CPU_FOR_FEWER)
        until("one pod of produce", lambda: len(dev.pods("produce")) == 1, AUTOSCALED_WITHIN_S, 1)


@pytest.fixture(scope="module")
def fixed(dev: Deployed) -> Deployed:
    """Without autoscalers, which would undo what a scenario scales. One pod of each service, and two front doors."""
    dev.kubectl("delete", "horizontalpodautoscaler", "--all")
    for service in SERVICES:
        dev.scale(service, 2 if service == "frontdoor" else 1)
    return dev


def test_nobody_notices_that_produce_and_fetch_are_scaled_up_and_down(fixed: Deployed) -> None:
    with traffic(fixed.bootstrap, "scaled", SCALED) as load:
        for service, replicas in (
            ("produce", 3),
            ("fetch", 2),
            ("fetch", 1),
            ("produce", 1),
            ("produce", 4),
            ("produce", 1),
        ):
            fixed.scale(service, replicas)
            goes_on(load)


def test_a_pod_of_each_service_is_deleted(fixed: Deployed) -> None:
    with traffic(fixed.bootstrap, "deleted", DELETED) as load:
        for service in SERVICES:
            fixed.delete(service)
            goes_on(load)


def test_a_process_of_each_service_is_killed(fixed: Deployed) -> None:
    with traffic(fixed.bootstrap, "killed", KILLED) as load:
        for service in SERVICES:
            fixed.kill(service)
            goes_on(load)


def test_every_service_is_rolled_while_dns_is_cached(fixed: Deployed) -> None:
    with traffic(fixed.bootstrap, "rolled", ROLLED) as load:
        for workload in WORKLOADS.values():
            began = time.monotonic()
            fixed.roll(workload)
            log.info("%s rolled in %.0f s", workload, time.monotonic() - began)
            goes_on(load)


def test_etcd_and_the_object_store_are_restarted(fixed: Deployed) -> None:
    with traffic(fixed.bootstrap, "restarted", STORES_RESTARTED) as load:
        for workload in ("statefulset/etcd", "statefulset/object-store"):
            began = time.monotonic()
            fixed.roll(workload)
            log.info("%s rolled in %.0f s", workload, time.monotonic() - began)
            goes_on(load)


def test_one_pod_of_a_service_may_be_evicted_at_a_time(fixed: Deployed) -> None:
    for service in SERVICES:
        if service != "upkeep":
            fixed.scale(service, 2)
            first, second = map(name_of, fixed.pods(service))
            fixed.evict(first)
            assert "disruption budget" in fixed.refuses_to_evict(second)
    fixed.evict("etcd-0")
    assert "disruption budget" in fixed.refuses_to_evict("etcd-1")
    fixed.wait_ready()
    fixed.wait_ready("statefulset/etcd")
