"""Laws of scaling: what sets the number of pods, and how many may be unavailable at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from e2e.checkers.manifests.objects import (
    POD_NAME,
    Manifest,
    Objects,
    Workload,
    of_kind,
    ours,
    quantity,
    selects,
    workloads,
)

ALONE: Final = "upkeep"
"""Does not scale: one works."""
METRIC: Final = re.compile(r"\bkafscale_[a-z0-9_]+")
DOWN_AT_A_TIME: Final = 1


def scalers_of(objects: Objects, workload: Workload) -> list[Manifest]:
    """The HorizontalPodAutoscalers and KEDA ScaledObjects of a workload."""
    return [
        each
        for each in of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject")
        if each["spec"]["scaleTargetRef"]["name"] == workload.name
    ]


def bounds(scaler: Manifest) -> tuple[int, int]:
    """The fewest and the most pods."""
    spec = scaler["spec"]
    if scaler["kind"] == "ScaledObject":
        return spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    return spec.get("minReplicas", 1), spec["maxReplicas"]


def one_decides_how_many(objects: Objects) -> list[str]:
    """Each workload has one scaler, and no `replicas`, which every `apply` would reset."""
    found = []
    for each in ours(objects):
        scalers = scalers_of(objects, each)
        if len(scalers) != (0 if each.service == ALONE else 1):
            found.append(f"{each.name} has {len(scalers)} autoscalers")
        if scalers and "replicas" in each.spec:
            found.append(f"{each.name} has a number and an autoscaler")
    return found


def autoscalers_are_within_reason(objects: Objects) -> list[str]:
    return [
        f"{each['metadata']['name']}: {fault}"
        for each in of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject")
        for fault in _scaler_faults(objects, each)
    ]


def _scaler_faults(objects: Objects, scaler: Manifest) -> Iterator[str]:
    reference = scaler["spec"]["scaleTargetRef"]
    target = next((each for each in workloads(objects) if each.name == reference["name"]), None)
    if target is None or (target.kind, "apps/v1") != (reference["kind"], reference["apiVersion"]):
        yield f"there is no {reference['kind']} {reference['name']}"
        return
    fewest, most = bounds(scaler)
    if not 1 <= fewest < most:
        yield f"from {fewest} to {most} pods is no range"
    for value in _cpu_values(scaler):
        limit = min(quantity(each["resources"]["limits"]["cpu"]) for each in target.pod["containers"])
        if value is None or not 0 < quantity(value) < min(limit, 1):
            yield "CPU is not scaled by a value below the one core that an event loop can use"
    behavior = (
        scaler["spec"]
        .get("advanced", {})
        .get("horizontalPodAutoscalerConfig", scaler["spec"])
        .get("behavior", {})
    )
    down = behavior.get("scaleDown", {})
    policies = down.get("policies", ())
    if not policies or any(each["type"] != "Pods" or each["value"] > DOWN_AT_A_TIME for each in policies):
        yield "more than one pod at a time may go"
    if down.get("stabilizationWindowSeconds", 300) < 120:
        yield "a lull of less than two minutes takes pods away"


def _cpu_values(scaler: Manifest) -> Iterator[str | None]:
    for metric in scaler["spec"].get("metrics", ()):
        if metric["type"] == "Resource":
            yield metric["resource"]["target"].get("averageValue")
    for trigger in scaler["spec"].get("triggers", ()):
        if trigger["type"] == "cpu":
            yield trigger["metadata"]["value"] if trigger.get("metricType") == "AverageValue" else None


def queries_name_metrics(objects: Objects, metrics: Mapping[str, str]) -> list[str]:
    """Scalers use metrics of this namespace that services export, summed and divided by the number of pods."""
    found = []
    for scaler in of_kind(objects, "ScaledObject"):
        for trigger in scaler["spec"]["triggers"]:
            if trigger["type"] == "prometheus":
                name = scaler["metadata"]["name"]
                found += [f"{name}: {fault}" for fault in _query_faults(scaler, trigger, metrics)]
    return found


def _query_faults(scaler: Manifest, trigger: dict[str, Any], metrics: Mapping[str, str]) -> Iterator[str]:
    query = trigger["metadata"]["query"]
    names = METRIC.findall(query)
    if len(names) != 1 or names[0] not in metrics:
        yield f"{query} does not name a metric"
        return
    if (metrics[names[0]] == "counter") != (f"rate({names[0]}" in query):
        yield f"{query} takes a {metrics[names[0]]} for something else"
    if f'namespace="{scaler["metadata"].get("namespace", "default")}"' not in query:
        yield f"{query} counts other namespaces too"
    if not query.startswith("sum(") or trigger.get("metricType") != "AverageValue":
        yield f"{query} is not a sum that is shared among pods"
    if not names[0].startswith(f"{scaler['spec']['scaleTargetRef']['name'].replace('-', '_')}_"):
        yield f"{query} is about another service"
    if float(trigger["metadata"]["threshold"]) <= 0:
        yield "its threshold is nothing"


def nodes_can_be_emptied_one_pod_at_a_time(objects: Objects) -> list[str]:
    """Each service has a disruption budget, which never blocks the drain of a node forever."""
    found = []
    budgets = [each["spec"] for each in of_kind(objects, "PodDisruptionBudget")]
    for each in workloads(objects):
        several = (
            max([each.spec.get("replicas", 1), *(bounds(one)[1] for one in scalers_of(objects, each))]) > 1
        )
        about = [one for one in budgets if selects(one["selector"], each.labels)]
        if len(about) != 1 and (several or each.service):
            found.append(f"{each.name} has {len(about)} disruption budgets")
        if any(one.get("maxUnavailable") != 1 for one in about):
            found.append(f"{each.name}: a node with one of its pods may never be emptied, or loses several")
    return found


def every_front_door_has_its_address(objects: Objects) -> list[str]:
    """If pods have addresses of their own, there are as many as the maximum number of pods."""
    found = []
    addressed = {each["spec"].get("selector", {}).get(POD_NAME) for each in of_kind(objects, "Service")} - {
        None
    }
    for each in ours(objects):
        if addressed and each.service == "frontdoor":
            for scaler in scalers_of(objects, each):
                wanted = {f"{each.name}-{ordinal}" for ordinal in range(bounds(scaler)[1])}
                if wanted != addressed:
                    found.append(f"addresses of {sorted(addressed)}, and pods may be {sorted(wanted)}")
    return found


def a_rollout_takes_none_away_before_its_successor(objects: Objects) -> list[str]:
    """A rollout starts a new pod before it stops an old one. A StatefulSet replaces its pods one by one."""
    found = []
    for each in ours(objects):
        if each.kind == "Deployment":
            rolling = each.spec.get("strategy", {}).get("rollingUpdate", {})
            if rolling.get("maxUnavailable") != 0 or rolling.get("maxSurge", 0) < 1:
                found.append(f"{each.name} goes before its successor is ready")
        elif each.spec.get("updateStrategy", {}).get("type") != "RollingUpdate":
            found.append(f"{each.name} is not rolled")
    return found
