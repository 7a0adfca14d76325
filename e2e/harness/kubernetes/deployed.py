"""A KafScale in a namespace of the cluster, and what operators and machines do to its pods."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from e2e.checkers.manifests.objects import COMPONENT, NAME, SERVICES
from e2e.harness.kubernetes.node import Node
from e2e.harness.manifests import Manifest
from e2e.harness.services import until

READY_TIMEOUT: Final = "5m"
AGAIN_TIMEOUT_S: Final = 120.0
WORKLOADS: Final = {
    service: f"{'statefulset' if service == 'frontdoor' else 'deployment'}/kafscale-{service}"
    for service in SERVICES
}


@dataclass(frozen=True, slots=True)
class Deployed:
    node: Node
    namespace: str

    @property
    def bootstrap(self) -> str:
        """For clients in the cluster."""
        return f"kafscale.{self.namespace}:9092"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.node.kubectl.within(self.namespace)(*words, stdin=stdin)

    def pods(self, service: str) -> list[Manifest]:
        """Those that are not ending, by name."""
        found = self.node.kubectl.within(self.namespace).items("pods", "--selector", f"{COMPONENT}={service}")
        living = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return sorted(living, key=name_of)

    def wait_ready(self, *workloads: str) -> None:
        """`workloads`: all services, if none is named."""
        for each in workloads or WORKLOADS.values():
            self.kubectl("rollout", "status", each, "--timeout", READY_TIMEOUT)

    def scale(self, service: str, replicas: int) -> None:
        """Returns when so many pods are ready and the others are gone."""
        self.kubectl("scale", WORKLOADS[service], f"--replicas={replicas}")
        self.wait_ready(WORKLOADS[service])
        selector = ("pods", "--selector", f"{COMPONENT}={service}")
        everything = self.node.kubectl.within(self.namespace)
        until(
            f"{replicas} pods of {service}",
            lambda: len(everything.items(*selector)) == replicas,
            AGAIN_TIMEOUT_S,
            1,
        )

    def roll(self, *workloads: str) -> None:
        for each in workloads:
            self.kubectl("rollout", "restart", each)
            self.wait_ready(each)

    def delete(self, service: str) -> None:
        """The last pod of a service. Returns when it is gone and another is ready."""
        self.kubectl("delete", "pod", name_of(self.pods(service)[-1]), "--wait")
        self.wait_ready(WORKLOADS[service])

    def kill(self, service: str) -> None:
        """kill -9 of the process of a service's last pod. Returns when it runs again and is ready."""
        pod = self.pods(service)[-1]
        container = container_of(pod)
        os.kill(self.node.process_of(container["containerID"].removeprefix("containerd://")), signal.SIGKILL)

        def again() -> bool:
            now = container_of(self.pods(service)[-1])
            return bool(now["ready"] and now["restartCount"] > container["restartCount"])

        until(f"{service} runs again", again, AGAIN_TIMEOUT_S, 1)

    def evict(self, pod: str) -> None:
        """Its budget may not have counted the last pods that became ready."""
        evicting = self.node.kubectl.within(self.namespace)
        words = eviction(self.namespace, pod)
        until(
            f"{pod} may be evicted", lambda: evicting.succeeds(*words, stdin=evicted(pod)), AGAIN_TIMEOUT_S, 1
        )

    def refuses_to_evict(self, pod: str) -> str:
        """The reason."""
        refusing = self.node.kubectl.within(self.namespace)
        return refusing.refused(*eviction(self.namespace, pod), stdin=evicted(pod))

    def story(self) -> str:
        """The pods, what happened to them, and the ends of their logs."""
        return "\n".join(
            self.kubectl(*words)
            for words in (
                ("get", "pods", "--output", "wide"),
                ("events",),
                ("logs", "--selector", f"{NAME}=kafscale", "--prefix", "--tail=15", "--ignore-errors"),
            )
        )

    def patch(self, kind: str, name: str, changes: Mapping[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "--patch", json.dumps(changes))


def name_of(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def container_of(pod: Manifest) -> dict[str, Any]:
    [status] = pod["status"]["containerStatuses"]
    found: dict[str, Any] = status
    return found


def eviction(namespace: str, pod: str) -> tuple[str, ...]:
    return ("create", "--raw", f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", "--filename", "-")


def evicted(pod: str) -> str:
    return json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}})
