"""Rendered objects as the laws use them: workloads with their pods, and the matches of selectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Manifest = dict[str, Any]
Objects = Sequence[Manifest]

NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
POD_NAME: Final = "statefulset.kubernetes.io/pod-name"
OURS: Final = "kafscale"
SERVICES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep")
CONSOLE: Final = "kafscale-console"
SUFFIXES: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "m": 0.001}


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or a StatefulSet."""

    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def namespace(self) -> str:
        return str(self.manifest["metadata"].get("namespace", "default"))

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.manifest["spec"])

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its pods."""
        return dict(self.spec["template"]["metadata"]["labels"])

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of its pods."""
        return dict(self.spec["template"]["metadata"].get("annotations", {}))

    @property
    def pod(self) -> dict[str, Any]:
        return dict(self.spec["template"]["spec"])

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All containers, including init containers."""
        return [*self.pod.get("initContainers", ()), *self.pod["containers"]]

    @property
    def service(self) -> str | None:
        """The KafScale service that it runs."""
        component = self.labels.get(COMPONENT)
        return component if self.labels.get(NAME) == OURS and component in SERVICES else None


def of_kind(objects: Objects, *kinds: str) -> Iterator[Manifest]:
    return (each for each in objects if each["kind"] in kinds)


def workloads(objects: Objects) -> list[Workload]:
    return [Workload(each) for each in of_kind(objects, "Deployment", "StatefulSet")]


def ours(objects: Objects) -> list[Workload]:
    """The workloads that run a KafScale service."""
    return [each for each in workloads(objects) if each.service is not None]


def console(objects: Objects) -> Workload | None:
    """The web console, which is a client and no service."""
    return next((each for each in workloads(objects) if each.name == CONSOLE), None)


def pods(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods of KafScale's services and of its jobs: the name of what makes them, and their spec."""
    for each in of_kind(objects, "Deployment", "StatefulSet", "CronJob"):
        spec = each["spec"]["jobTemplate"]["spec"] if each["kind"] == "CronJob" else each["spec"]
        if spec["template"]["metadata"].get("labels", {}).get(NAME) == OURS:
            yield str(each["metadata"]["name"]), spec["template"]["spec"]


def named(objects: Objects, kind: str, name: str) -> Manifest | None:
    return next((each for each in of_kind(objects, kind) if each["metadata"]["name"] == name), None)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A Kubernetes label selector. An empty one matches all pods, and None matches no pod."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_expressed(each, labels) for each in selector.get("matchExpressions", ()))


def _expressed(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", ())
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(expression["operator"])


def ports(container: Mapping[str, Any]) -> dict[str, int]:
    """By name."""
    return {each["name"]: each["containerPort"] for each in container.get("ports", ())}


def quantity(text: str | int) -> float:
    """Bytes or cores: 512Mi, 2, 700m."""
    text = str(text)
    suffix = next((each for each in SUFFIXES if text.endswith(each)), "")
    return float(text.removesuffix(suffix)) * SUFFIXES.get(suffix, 1)
