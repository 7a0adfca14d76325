"""Every component of security together, in a namespace of its own: TLS everywhere, logins and ACLs, an etcd with TLS.

The tests make the Secrets that cert-manager would make of the Certificates, and give the load balancer its address.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.testkit.authority import Authority

from e2e.checkers.manifests.objects import Objects, of_kind
from e2e.harness.kubernetes.deployed import WORKLOADS, Deployed
from e2e.harness.kubernetes.node import Node
from e2e.harness.kubernetes.traffic import Bounds, create, traffic
from e2e.harness.law import goes_on
from e2e.harness.manifests import Manifest, patched
from e2e.harness.secured import settings_of

NAMESPACE: Final = "kafscale-secured"
ADDRESS: Final = "203.0.113.10"
"""Of the load balancer."""
PASSWORD: Final = "not-a-secret"
COMPONENTS: Final = (
    *("etcd", "etcd-tls", "object-store", "priority"),
    *("one-address", "internal-tls", "tls", "authorization", "cluster-quotas"),
)
MORE: Final = f"""
configMapGenerator: [{{name: kafscale-outside, literals: ["address={ADDRESS}:9094"]}}]
secretGenerator:
  - name: kafscale-credentials
    literals: [KAFSCALE_S3_ACCESS_KEY_ID=kafscale, KAFSCALE_S3_SECRET_ACCESS_KEY=for-development-only]
patches:
  - target: {{kind: Deployment|StatefulSet}}
    patch: |
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/cpu, value: 20m}}
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/memory, value: 128Mi}}
"""
ROLLED: Final = Bounds(silence_s=10, group_silence_s=15, errors=40)

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1_800)]


@dataclass(frozen=True, slots=True)
class Secured:
    deployed: Deployed
    ca: Path

    @property
    def bootstrap(self) -> str:
        return f"{ADDRESS}:9094"

    def login(self, password: str = PASSWORD) -> dict[str, Any]:
        return settings_of(self.bootstrap, self.ca, "admin", password)


@pytest.fixture(scope="module")
def secured(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    node.volumes(*(f"secured-{number}" for number in range(4)))
    objects = patched("../base", MORE, folder, COMPONENTS, NAMESPACE)
    outside = Authority(folder / "outside")
    namespace = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    node.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    users = base64.b64encode(f"admin:{PASSWORD}\n".encode()).decode()
    deployed = Deployed(node, NAMESPACE)
    within = node.kubectl.within(NAMESPACE)
    within.apply(
        *secrets(objects, folder),
        secret("kafscale-tls", outside.issue(ADDRESS)),
        {**named_secret("kafscale-first-users"), "data": {"users": users}},
    )
    within.apply(*(each for each in objects if each["kind"] not in ("Certificate", "Issuer")))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": ADDRESS}]}}}
    within(
        "patch",
        "service",
        "kafscale-outside",
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps(status),
    )
    deployed.wait_ready("statefulset/etcd", "statefulset/object-store")
    deployed.wait_ready()
    yield Secured(deployed, outside.ca)
    node.kubectl("delete", "namespace", NAMESPACE, "--wait")


def secrets(objects: Objects, folder: Path) -> Iterator[Manifest]:
    """What cert-manager would make: an authority for each certificate of a CA, and what its issuer signs."""
    specs = [each["spec"] for each in of_kind(objects, "Certificate")]
    authorities = {
        spec["secretName"]: Authority(folder / spec["secretName"]) for spec in specs if spec.get("isCA")
    }
    issuers = {
        each["metadata"]["name"]: authorities[each["spec"]["ca"]["secretName"]]
        for each in of_kind(objects, "Issuer")
        if "ca" in each["spec"]
    }
    for spec in specs:
        if not spec.get("isCA"):
            names = [*spec.get("dnsNames", ()), *spec.get("ipAddresses", ())]
            issued = issuers[spec["issuerRef"]["name"]].issue(*names, common_name=spec.get("commonName"))
            yield secret(spec["secretName"], issued)


def named_secret(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


def secret(name: str, files: PemFiles) -> Manifest:
    data: Mapping[str, Path] = {"tls.crt": files.certificate, "tls.key": files.key, "ca.crt": files.ca}
    encoded = {key: base64.b64encode(path.read_bytes()).decode() for key, path in data.items()}
    return {**named_secret(name), "type": "kubernetes.io/tls", "data": encoded}


def test_clients_outside_log_in_and_notice_no_roll(secured: Secured) -> None:
    deployed = secured.deployed
    deployed.kubectl("delete", "horizontalpodautoscaler", "--all")
    for service in WORKLOADS:
        if service != "upkeep":
            deployed.scale(service, 2)
    with traffic(secured.bootstrap, "secured", ROLLED, secured.login()) as load:
        for service in ("produce", "fetch", "coordinator", "admin"):
            deployed.roll(WORKLOADS[service])
            goes_on(load)


def test_a_wrong_password_and_a_client_without_a_login_are_refused(secured: Secured) -> None:
    stranger = AdminClient({**secured.login("wrong"), "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=10)
    with pytest.raises(KafkaException) as refused:
        create(secured.deployed.bootstrap, "anonymous", {})
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
