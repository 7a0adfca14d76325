"""The pods of the manifests as processes of this machine: each on an address of its own, with the environment that a
kubelet would make of the rendered objects, and the ports that the manifests name.

Only what a cluster would resolve is replaced: the name of a pod, and where etcd and the store are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from kafscale.testkit.seaweed import require_weed

from e2e.checkers.manifests.environment import environment
from e2e.checkers.manifests.objects import Objects, Workload, ours
from e2e.harness.clients import NEW_CLIENT
from e2e.harness.deployment import Deployment, s3_env
from e2e.harness.inside import get
from e2e.harness.manifests import rendered
from e2e.harness.services import Service, until

PARTITIONS: Final = 3
RECORDS: Final = 200
TOPIC: Final = "from-pods"

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, slots=True)
class Pod:
    workload: Workload
    address: str
    process: Service

    def answers(self, kind: str) -> int:
        """The status that the kubelet sees at a probe's path and port."""
        assert self.process.process.poll() is None, self.process.story()
        [container] = self.workload.pod["containers"]
        asked = container[kind]["httpGet"]
        [port] = [each["containerPort"] for each in container["ports"] if each["name"] == asked["port"]]
        try:
            return get(f"{self.address}:{port}", asked["path"])[0]
        except OSError:
            return 0

    def wait_for(self, kind: str) -> None:
        until(f"{self.workload.name} passes its {kind}", lambda: self.answers(kind) == 200)


def started(objects: Objects, workload: Workload, ordinal: int, deployment: Deployment) -> Pod:
    name, own = f"{workload.name}-{ordinal}", os.getpid()
    address = f"127.{100 + own % 100}.{own // 100 % 250}.{ordinal + 1}"
    fields = {"metadata.name": name, "status.podIP": address}
    said = environment(objects, workload, workload.pod["containers"][0], fields)
    resolved = f"{name}.{workload.spec.get('serviceName')}.{workload.namespace}.svc"
    here = {
        key: value.replace("0.0.0.0", address).replace("://:", f"://{address}:").replace(resolved, address)
        for key, value in said.items()
    }
    outside = {**s3_env(deployment.s3), "KAFSCALE_ETCD_ENDPOINTS": deployment.etcd.endpoint}
    outside["KAFSCALE_NUM_PARTITIONS"] = str(deployment.partitions)
    env = {key: value for key, value in (here | outside).items() if value}
    role = str(workload.service)
    return Pod(workload, address, Service.start(role, env, deployment.folder / "log" / f"{name}.log"))


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """An etcd and an S3 that do not run yet."""
    require_weed()
    deployment = Deployment(tmp_path_factory.mktemp("pods"), PARTITIONS)
    yield deployment
    deployment.kill()


@pytest.fixture(scope="module")
def pods(deployment: Deployment) -> Iterator[list[Pod]]:
    objects = rendered("dev")
    made = [started(objects, each, ordinal, deployment) for ordinal, each in enumerate(ours(objects))]
    yield made
    for pod in made:
        pod.process.kill()


def test_without_etcd_pods_are_alive_and_not_ready(pods: list[Pod]) -> None:
    assert len(pods) == 6
    for pod in pods:
        pod.wait_for("startupProbe")
        assert pod.answers("livenessProbe") == 200
        assert pod.answers("readinessProbe") == 503


def test_pods_serve_clients_at_the_addresses_of_the_manifests(
    deployment: Deployment, pods: list[Pod]
) -> None:
    deployment.start_etcd()
    deployment.start_s3()
    for pod in pods:
        pod.wait_for("readinessProbe")
    [door] = [pod.address for pod in pods if pod.workload.service == "frontdoor"]
    NEW_CLIENT.produce(f"{door}:9092", TOPIC, "none", RECORDS)
    assert len(NEW_CLIENT.consume(f"{door}:9092", TOPIC, RECORDS)) == RECORDS


def test_pods_that_are_told_to_end_leave_within_their_grace(pods: list[Pod]) -> None:
    for pod in pods:
        assert pod.process.stop() == 0, pod.process.story()
