"""What the API server and the scheduler make of the manifests: all are accepted, and pods spread."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.checkers.manifests.objects import COMPONENT, workloads
from e2e.harness.combinations import COMBINATIONS, VALUES, combination
from e2e.harness.kubernetes.deployed import name_of
from e2e.harness.kubernetes.kubectl import Kubectl
from e2e.harness.kubernetes.node import Node
from e2e.harness.manifests import ROOT, SPARK_OPERATOR, Manifest, charted, overlays, rendered
from e2e.harness.services import until

ACCEPTED, SPREAD = "accepted", "spread"
ZONES: Final = {f"fake{number}": f"z{(number - 1) % 3 + 1}" for number in range(1, 7)}
"""Of nodes that no kubelet runs: pods are bound to them and never start."""
SIZE: Final = {"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
FULL, FILLER_CPU = "fake1", "3900m"
PODS_MAX: Final = 10
SHARED_MAX: Final = 3
"""Pods of a service on one node, of ten on five nodes that have room."""
BOUND_WITHIN_S: Final = 60.0
CLUSTER_WIDE: Final = ("Namespace", "PriorityClass")

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def accepting(node: Node) -> Kubectl:
    """A namespace where nothing runs, and which enforces the standard `restricted`."""
    for path in sorted((ROOT / "schemas").glob("*.yaml")):
        node.kubectl("apply", "--server-side", "--filename", str(path))
    node.kubectl("wait", "--for=condition=Established", "customresourcedefinition", "--all", "--timeout=1m")
    restricted = {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}
    metadata = {"name": ACCEPTED, "labels": restricted}
    node.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return node.kubectl.within(ACCEPTED)


@pytest.mark.parametrize("name", [*overlays(), *COMBINATIONS])
def test_the_api_server_accepts_every_object(accepting: Kubectl, name: str, tmp_path: Path) -> None:
    accepted(accepting, combination(name, tmp_path))


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_accepts_every_object_of_the_chart(accepting: Kubectl, name: str) -> None:
    accepted(accepting, charted(VALUES[name]))


def accepted(kubectl: Kubectl, objects: list[Manifest]) -> None:
    known = [each for each in objects if each["apiVersion"] != SPARK_OPERATOR]
    assert known or objects
    if known:
        said = kubectl.apply(*(moved(each, ACCEPTED) for each in known), dry_run=True)
        assert len(said.splitlines()) == len(known)


def moved(manifest: Manifest, namespace: str) -> Manifest:
    """The object in another namespace."""
    if manifest["kind"] in CLUSTER_WIDE:
        return manifest
    found = deepcopy(manifest)
    found["metadata"]["namespace"] = namespace
    for subject in found.get("subjects", ()):
        subject["namespace"] = namespace
    return found


@pytest.fixture
def scheduling(node: Node) -> Iterator[Kubectl]:
    """`production` on six nodes of four cores in three zones, two pods of each service, and one full node."""
    kubectl = node.kubectl.within(SPREAD)
    node.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPREAD}})
    for name, zone in ZONES.items():
        fake_node(node.kubectl, name, zone)
    kubectl.apply(filler())
    bound(kubectl, "app=filler", 1)
    kubectl.apply(*production())
    yield kubectl
    kubectl("delete", "deployment,statefulset,replicaset", "--all", "--cascade=orphan")
    kubectl("delete", "pod", "--all", "--force", "--grace-period=0")
    node.kubectl("delete", "node", *ZONES)
    node.kubectl("delete", "namespace", SPREAD, "--wait")
    node.kubectl("delete", "priorityclass", "kafscale")


def fake_node(kubectl: Kubectl, name: str, zone: str) -> None:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, "fake": "true"}
    taint = {"key": "fake", "value": "true", "effect": "NoSchedule"}
    metadata = {"name": name, "labels": labels}
    kubectl.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": [taint]}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"status": {"capacity": SIZE, "allocatable": SIZE, "conditions": [ready]}}
    kubectl("patch", "node", name, "--subresource=status", "--type=merge", "--patch", json.dumps(status))


def on_fakes(pod: dict[str, Any]) -> dict[str, Any]:
    return {**pod, "nodeSelector": {"fake": "true"}, "tolerations": [{"key": "fake", "operator": "Exists"}]}


def filler() -> Manifest:
    container = {"name": "filler", "image": "filler", "resources": {"requests": {"cpu": FILLER_CPU}}}
    spec = on_fakes({"containers": [container]})
    spec["nodeSelector"]["kubernetes.io/hostname"] = FULL
    metadata = {"name": "filler", "labels": {"app": "filler"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def production() -> list[Manifest]:
    found = []
    for each in rendered("production"):
        if each["kind"] in ("HorizontalPodAutoscaler", "Namespace"):
            continue
        made = moved(each, SPREAD)
        if made["kind"] in ("Deployment", "StatefulSet"):
            made["spec"].setdefault("replicas", 2)
            made["spec"]["template"]["spec"] = on_fakes(made["spec"]["template"]["spec"])
        found.append(made)
    return found


def nodes_of(kubectl: Kubectl, selector: str) -> Counter[str]:
    pods = kubectl.items("pods", "--selector", selector)
    return Counter(each["spec"].get("nodeName", "none") for each in pods)


def bound(kubectl: Kubectl, selector: str, count: int) -> Counter[str]:
    """The nodes of so many pods, when each has one."""

    def all_bound() -> bool:
        found = nodes_of(kubectl, selector)
        return found.total() == count and "none" not in found

    until(f"{count} pods of {selector} have a node", all_bound, BOUND_WITHIN_S, 1)
    return nodes_of(kubectl, selector)


def test_pods_spread_over_nodes_and_zones_and_a_full_node_blocks_and_evicts_nobody(
    scheduling: Kubectl,
) -> None:
    for each in workloads(production()):
        replicas = int(each.spec["replicas"])
        places = bound(scheduling, f"{COMPONENT}={each.service}", replicas)
        assert len(places) == replicas, places
        assert len({ZONES[name] for name in places}) == replicas, places
    scheduling("scale", "deployment/kafscale-produce", f"--replicas={PODS_MAX}")
    places = bound(scheduling, f"{COMPONENT}=produce", PODS_MAX)
    assert set(places) == set(ZONES) - {FULL}
    assert max(places.values()) <= SHARED_MAX
    scheduling("rollout", "restart", "deployment/kafscale-produce")
    bound(scheduling, f"{COMPONENT}=produce", PODS_MAX + 1)
    assert [name_of(each) for each in scheduling.items("pods", "--selector", "app=filler")] == ["filler"]
    assert nodes_of(scheduling, "app=filler") == Counter({FULL: 1})
