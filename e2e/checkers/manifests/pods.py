"""Laws of pods: their probes, resources, permissions, and time to shut down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from e2e.checkers.manifests.environment import settings_of
from e2e.checkers.manifests.objects import (
    NAME,
    Objects,
    Workload,
    named,
    ours,
    ports,
    quantity,
    selects,
    workloads,
)

KINDS_OF_PROBE: Final = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
START_S_MIN: Final = 30
ALIVE_S_MIN: Final = 20
READY_S_MAX: Final = 10
LEAVE_S: Final = 5
"""Streams end and the registration is taken back after the drain: `runtime/grpc_server.py`, `runtime/process.py`."""
PROCESS_BYTES: Final = 256 << 20
RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
HOSTNAME: Final = "kubernetes.io/hostname"
TOPOLOGIES: Final = {"topology.kubernetes.io/zone", HOSTNAME}
CONFINED: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def probes_mean_different_things(objects: Objects) -> list[str]:
    """Startup, liveness and readiness have different probes, because each failure needs a different reaction."""
    return [fault for each in workloads(objects) for fault in _probe_faults(each)]


def _probe_faults(workload: Workload) -> Iterator[str]:
    for container in workload.pod["containers"]:
        where = f"{workload.name}/{container['name']}"
        missing = [kind for kind in KINDS_OF_PROBE if kind not in container]
        if missing:
            yield f"{where} has no {', '.join(missing)}"
            continue
        known = {*ports(container), *ports(container).values()}
        for kind, path in KINDS_OF_PROBE.items():
            asked = container[kind].get("httpGet") or container[kind].get("tcpSocket", {})
            if "exec" not in container[kind] and asked.get("port") not in known:
                yield f"{where}: {kind} asks a port that the container has not"
            if workload.service and asked.get("path") != path:
                yield f"{where}: {kind} does not ask {path}"
        if _handler(container["livenessProbe"]) == _handler(container["readinessProbe"]):
            yield f"{where}: alive and ready are the same question"
        yield from _patience_faults(where, container)


def _handler(probe: dict[str, Any]) -> dict[str, Any]:
    return {kind: probe[kind] for kind in ("httpGet", "tcpSocket", "exec") if kind in probe}


def _patience_faults(where: str, container: dict[str, Any]) -> Iterator[str]:
    for kind, least, most in (
        ("startupProbe", START_S_MIN, 600),
        ("livenessProbe", ALIVE_S_MIN, 120),
        ("readinessProbe", 1, READY_S_MAX),
    ):
        patience_s = container[kind].get("periodSeconds", 10) * container[kind].get("failureThreshold", 3)
        if not least <= patience_s <= most:
            yield f"{where}: {kind} waits {patience_s} s, not {least} to {most}"


def needs_are_said_and_bounded(objects: Objects) -> list[str]:
    return [fault for each in workloads(objects) for fault in _resource_faults(each)]


def _resource_faults(workload: Workload) -> Iterator[str]:
    for container in workload.containers:
        where = f"{workload.name}/{container['name']}"
        said = container.get("resources", {})
        for name in RESOURCES:
            if name not in said.get("requests", {}) or name not in said.get("limits", {}):
                yield f"{where} does not say how much {name} it needs and may have"
            elif quantity(said["requests"][name]) > quantity(said["limits"][name]):
                yield f"{where} asks for more {name} than it may have"


def memory_holds_what_the_settings_allow(objects: Objects) -> list[str]:
    """The memory limit covers requests, buffers and the cache at their bounds, and the process itself."""
    found = []
    for each in ours(objects):
        settings = settings_of(objects, each)
        held = settings.memory_bytes + (settings.cache_bytes if each.service == "fetch" else 0)
        limit = quantity(each.pod["containers"][0]["resources"]["limits"]["memory"])
        if limit < held + PROCESS_BYTES:
            found.append(f"{each.name} may hold {held} bytes, and its limit is {limit:.0f}")
    return found


def pods_may_do_little(objects: Objects) -> list[str]:
    return [fault for each in workloads(objects) for fault in _security_faults(each)]


def _security_faults(workload: Workload) -> Iterator[str]:
    pod = workload.pod.get("securityContext", {})
    if pod.get("runAsNonRoot") is not True or pod.get("runAsUser") != 10001:
        yield f"{workload.name} may run as root, or not as user 10001"
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{workload.name} has no seccomp profile"
    for kind in ("hostNetwork", "hostPID", "hostIPC"):
        if workload.pod.get(kind):
            yield f"{workload.name} has {kind}"
    for container in workload.containers:
        context = container.get("securityContext", {})
        for key, value in CONFINED.items():
            if context.get(key) != value:
                yield f"{workload.name}/{container['name']}: {key} is {context.get(key)}"


def nobody_speaks_to_kubernetes(objects: Objects) -> list[str]:
    """Each workload has its own service account, and no pod mounts a token."""
    found = []
    for each in workloads(objects):
        account = each.pod.get("serviceAccountName", "default")
        manifest = named(objects, "ServiceAccount", account)
        if account != each.name or manifest is None:
            found.append(f"{each.name} has no account of its own")
        elif manifest.get("automountServiceAccountToken") is not False:
            found.append(f"the account {account} gives its token away")
        if each.pod.get("automountServiceAccountToken") is not False:
            found.append(f"{each.name} has a token")
    return found


def no_variables_of_services(objects: Objects) -> list[str]:
    """No service links: KAFSCALE_FETCH_PORT=tcp://… would be read as a setting."""
    return [
        f"{each.name} gets variables of Services"
        for each in workloads(objects)
        if each.pod.get("enableServiceLinks") is not False
    ]


def leaving_takes_less_than_the_grace(objects: Objects) -> list[str]:
    found = []
    for each in ours(objects):
        takes_s = _pre_stop_s(each) + settings_of(objects, each).drain_timeout_ms / 1000 + LEAVE_S
        grace_s = each.pod.get("terminationGracePeriodSeconds", 30)
        if grace_s <= takes_s:
            found.append(f"{each.name} is killed after {grace_s} s, and may need {takes_s:.0f}")
    return found


def only_front_doors_wait_before_they_drain(objects: Objects) -> list[str]:
    """A front door waits until load balancers send no more clients. The other services announce their end in etcd."""
    return [
        f"{each.name} waits {_pre_stop_s(each)} s before it drains"
        for each in ours(objects)
        if (_pre_stop_s(each) > 0) != (each.service == "frontdoor")
    ]


def _pre_stop_s(workload: Workload) -> int:
    hook = workload.pod["containers"][0].get("lifecycle", {}).get("preStop", {})
    return int(hook.get("sleep", {}).get("seconds", 0))


def pods_are_spread(objects: Objects) -> list[str]:
    """The pods of each service are spread over zones, and two of them share a node only if every node has one."""
    found = []
    for each in ours(objects):
        constraints = each.pod.get("topologySpreadConstraints", ())
        if {one["topologyKey"] for one in constraints} != TOPOLOGIES:
            found.append(f"{each.name} is not spread over zones and nodes")
        [by_node] = [one for one in constraints if one["topologyKey"] == HOSTNAME] or [{}]
        strict = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor"}
        if not strict.items() <= by_node.items():
            found.append(f"{each.name} may lose two pods with one node, or waits for nodes that take none")
        for one in constraints:
            keys = one.get("matchLabelKeys", ())
            if (
                not selects(one.get("labelSelector"), each.labels)
                or f"{NAME.rpartition('/')[0]}/component" not in keys
            ):
                found.append(f"{each.name} is not spread by its own pods")
    return found


def what_is_written_is_bounded(objects: Objects) -> list[str]:
    """The root filesystem is read-only, writable volumes have a limit, and every mount has a volume."""
    found = []
    for each in workloads(objects):
        claims = {claim["metadata"]["name"] for claim in each.spec.get("volumeClaimTemplates", ())}
        volumes = {volume["name"]: volume for volume in each.pod.get("volumes", ())}
        found += [
            f"{each.name}: the volume {name} has no limit"
            for name, volume in volumes.items()
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]
        ]
        for container in each.containers:
            mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}
            found += [
                f"{each.name}: no volume {name}"
                for name in mounts.values()
                if name not in {*claims, *volumes}
            ]
            if each.service and "emptyDir" not in volumes.get(mounts.get("/tmp", ""), {}):
                found.append(f"{each.name}/{container['name']} has no /tmp")
    return found


def images_are_named(objects: Objects) -> list[str]:
    """A service's container is of the service's image, and each image has a tag or a digest."""
    found = []
    for each in workloads(objects):
        for container in each.containers:
            name, _, tag = container["image"].rpartition("/")[2].partition(":")
            if not tag and "@" not in name:
                found.append(f"{each.name}: the image {container['image']} has no tag")
            if each.service and name.partition("@")[0] != f"kafscale-{each.service}":
                found.append(f"{each.name} runs {container['image']}")
            if container.get("imagePullPolicy") != "IfNotPresent":
                found.append(f"{each.name}: a pod would not start where the registry is away")
    return found
