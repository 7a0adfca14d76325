"""Laws of the network: Services, selectors, and the effect of network policies.

A packet passes if both sides allow it: the sender's egress and the receiver's ingress. If no policy of a direction
selects a pod, the pod is open in that direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final

from e2e.checkers.manifests.environment import settings_of
from e2e.checkers.manifests.objects import (
    COMPONENT,
    POD_NAME,
    Manifest,
    Objects,
    Workload,
    named,
    of_kind,
    ours,
    ports,
    selects,
    workloads,
)

Edge = tuple[str, str, int]
"""From, to, port."""
ASKED: Final = ("produce", "fetch", "coordinator", "admin")
NAMESPACE: Final = "kubernetes.io/metadata.name"
MONITORING: Final = "monitoring"
GRPC, HTTP, KAFKA, OUTSIDE, DNS = 7000, 8000, 9092, 9094, 53
RESOLVERS: Final = (
    ("k8s-app=kube-dns|node-local-dns in kube-system", DNS),
    ("169.254.20.10/32", DNS),  # NodeLocal DNSCache
    ("dns.operator.openshift.io/daemonset-dns=default in openshift-dns", 5353),
)
POD_IDENTITY: Final = ("169.254.170.23/32", "fd00:ec2::23/128")
INSTANCE_METADATA: Final = ("169.254.169.254/32", "fd00:ec2::254/128")
NODE: Final = {4: "169.254.0.0/16", 6: "fe80::/10"}
"""Addresses of the node itself, where it hands out keys, by the version of IP."""
ELSEWHERE: Final = "addresses outside"
WITHOUT_BUCKET: Final = ("kafscale-frontdoor", "kafscale-coordinator")


def services_reach_ports(objects: Objects) -> list[str]:
    return [
        f"the Service {each['metadata']['name']}: {fault}"
        for each in of_kind(objects, "Service")
        for fault in _service_faults(objects, each)
    ]


def _service_faults(objects: Objects, service: Manifest) -> Iterator[str]:
    meant = [each for each in workloads(objects) if _meant(service["spec"]["selector"], each)]
    if len(meant) != 1:
        yield f"it is for the pods of {len(meant)} workloads"
    for workload in meant:
        known = {name: port for each in workload.pod["containers"] for name, port in ports(each).items()}
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            if target not in {*known, *known.values()}:
                yield f"{workload.name} has no port {target}"
            elif known.get(target, target) != port["port"]:
                yield f"{port['port']} is {known[target]} behind it, and one of them is advertised to clients"


def _meant(selector: Mapping[str, str], workload: Workload) -> bool:
    if set(selector) == {POD_NAME}:
        return workload.kind == "StatefulSet" and selector[POD_NAME].rpartition("-")[0] == workload.name
    return selects({"matchLabels": selector}, workload.labels)


def pods_have_names(objects: Objects) -> list[str]:
    """A StatefulSet has a headless Service, which also names pods that are not ready."""
    found = []
    for each in workloads(objects):
        if each.kind == "StatefulSet" and each.name != "object-store":
            spec = (named(objects, "Service", each.spec["serviceName"]) or {"spec": {}})["spec"]
            if spec.get("clusterIP") != "None" or not spec.get("publishNotReadyAddresses"):
                found.append(f"pods of {each.name} have no names before they are ready")
            elif not selects({"matchLabels": spec["selector"]}, each.labels):
                found.append(f"the names are of other pods than {each.name}'s")
    return found


def selectors_mean_their_own(objects: Objects) -> list[str]:
    """A workload's selector selects exactly its own pods; a policy's or a budget's selects at least one pod."""
    found = []
    pods = _pods(objects)
    for each in workloads(objects):
        meant = {name for name, labels in pods.items() if selects(each.spec["selector"], labels)}
        if meant != {each.name}:
            found.append(f"{each.name} takes the pods of {sorted(meant)} for its own")
    for manifest in of_kind(objects, "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"):
        selector = manifest["spec"].get("podSelector", manifest["spec"].get("selector"))
        if not any(selects(selector, labels) for labels in pods.values()):
            found.append(f"{manifest['kind']} {manifest['metadata']['name']} is about nobody")
    return found


def scrapes_are_named_as_alerts_know_them(objects: Objects) -> list[str]:
    """Each service has a scrape job, at the port `http` of its pods, and each scraped service has its alerts."""
    return [fault for each in of_kind(objects, "PodMonitor") for fault in _scrape_faults(objects, each)]


def _scrape_faults(objects: Objects, monitor: Manifest) -> Iterator[str]:
    spec = monitor["spec"]
    if spec.get("jobLabel") != COMPONENT:
        yield "jobs are not named as services are"
    if [one.name for one in ours(objects) if not selects(spec["selector"], one.labels)]:
        yield "not every service is scraped"
    for end in spec["podMetricsEndpoints"]:
        answering = {ports(one.pod["containers"][0]).get(end["port"]) for one in ours(objects)}
        if answering != {HTTP} or end["path"] != "/metrics":
            yield f"nobody answers at {end['port']}{end['path']}"
    if not any(of_kind(objects, "PrometheusRule")):
        yield "no alert comes of it"


def annotations_lead_to_metrics(objects: Objects) -> list[str]:
    """A Prometheus without the operator finds the port and the path of a service by its pods' annotations."""
    found = []
    for each in ours(objects):
        wanted = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(ports(each.pod["containers"][0]).get("http")),
            "prometheus.io/path": "/metrics",
        }
        if not wanted.items() <= each.annotations.items():
            found.append(f"{each.name} says that its metrics are at {each.annotations}")
    return found


def _pods(objects: Objects) -> dict[str, dict[str, str]]:
    """The labels of all pods, also of jobs, by the name of their workload."""
    found = {each.name: each.labels for each in workloads(objects)}
    for job in of_kind(objects, "CronJob"):
        labels = job["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
        found[str(job["metadata"]["name"])] = dict(labels)
    return found


def _everybody(objects: Objects) -> dict[str, dict[str, str]]:
    """All pods, and one that somebody else starts in this namespace."""
    return {**_pods(objects), "a stranger": {}}


def only_who_must_is_let_through(objects: Objects) -> list[str]:
    """The policies allow exactly the needed flows."""
    given, wanted = edges(objects), needed(objects)
    return [
        *(f"{who} may reach {whom} at {port}" for who, whom, port in sorted(given - wanted)),
        *(f"{who} cannot reach {whom} at {port}" for who, whom, port in sorted(wanted - given)),
    ]


def needed(objects: Objects) -> set[Edge]:
    """The needed flows: every pod of KafScale may reach etcd and the store, front doors may reach services."""
    pods = _everybody(objects)
    serving = [each.name for each in ours(objects)]
    found = {(name, *resolver) for name in pods for resolver in RESOLVERS}
    found |= {("kafscale-frontdoor", f"kafscale-{each}", GRPC) for each in ASKED}
    found |= {(MONITORING, name, HTTP) for name in serving}
    found.add(("anyone", "kafscale-frontdoor", KAFKA))
    if named(objects, "ConfigMap", "kafscale-outside") or _has_port(objects, "kafscale-frontdoor", OUTSIDE):
        found.add(("anyone", "kafscale-frontdoor", OUTSIDE))
    if any(getattr(settings_of(objects, each), "quota_scope", "") == "cluster" for each in ours(objects)):
        found.add(("kafscale-frontdoor", "kafscale-frontdoor", GRPC))
    found |= _needed_stores(objects, pods)
    if "redis" in pods:
        found |= {(f"kafscale-{each}", "redis", 6379) for each in ("produce", "fetch")}
    if any(settings_of(objects, each).otlp_endpoint for each in ours(objects)):
        found |= {(name, "observability", 4317) for name in serving}
    return found


def _needed_stores(objects: Objects, pods: Mapping[str, object]) -> set[Edge]:
    """To etcd and the object store, here or elsewhere, and to what gives pods the keys of a cloud's role."""
    own = [name for name in pods if name.startswith("kafscale-")]
    with_bucket = [name for name in own if name not in WITHOUT_BUCKET]
    if "etcd" in pods:
        found = {(name, "etcd", 2379) for name in own} | {("etcd", "etcd", 2380)}
    else:
        found = {(name, ELSEWHERE, 2379) for name in own}
    if "object-store" in pods:
        return found | {(name, "object-store", 8333) for name in own}
    found |= {(name, ELSEWHERE, 443) for name in own}
    found |= {(name, where, 80) for name in with_bucket for where in POD_IDENTITY}
    if named(objects, "NetworkPolicy", "kafscale-to-instance-metadata"):
        found |= {(name, where, 80) for name in with_bucket for where in INSTANCE_METADATA}
    return found


def _has_port(objects: Objects, workload: str, port: int) -> bool:
    return any(
        port in ports(container).values()
        for each in workloads(objects)
        if each.name == workload
        for container in each.containers
    )


def edges(objects: Objects) -> set[Edge]:
    """All flows that the policies allow: between pods, and from and to other addresses."""
    pods = _everybody(objects)
    policies = [each["spec"] for each in of_kind(objects, "NetworkPolicy")]
    found = set[Edge]()
    for name, labels in pods.items():
        found |= {(name, whom, port) for whom, port in _others(policies, labels, "Egress")}
        found |= {(who, name, port) for who, port in _others(policies, labels, "Ingress")}
        for other, its_labels in pods.items():
            sent = _between(policies, labels, its_labels, "Egress")
            taken = _between(policies, its_labels, labels, "Ingress")
            found |= {(name, other, port) for port in sent & taken}
            found |= {(name, f"half of {other}", port) for port in sent ^ taken}
    return found


def _rules(policies: list[dict[str, Any]], labels: Mapping[str, str], way: str) -> Iterator[dict[str, Any]]:
    about = [each for each in policies if selects(each["podSelector"], labels) and way in each["policyTypes"]]
    if not about:
        yield {"ports": [{"port": 0}]}  # no policy: everything, which is not a port that anybody needs
    for policy in about:
        yield from policy.get(way.lower(), ())


def _between(
    policies: list[dict[str, Any]], labels: Mapping[str, str], peer: Mapping[str, str], way: str
) -> set[int]:
    """The ports that the rules for `labels` open for a pod of this namespace."""
    side = "to" if way == "Egress" else "from"
    return {
        port["port"]
        for rule in _rules(policies, labels, way)
        for one in rule.get(side, ())
        if "podSelector" in one and "namespaceSelector" not in one and selects(one["podSelector"], peer)
        for port in rule.get("ports", [{"port": 0}])
    }


def _others(policies: list[dict[str, Any]], labels: Mapping[str, str], way: str) -> Iterator[tuple[str, int]]:
    """Peers outside this namespace, each by a name; port 0 means all ports."""
    side = "to" if way == "Egress" else "from"
    for rule in _rules(policies, labels, way):
        for port in rule.get("ports", [{"port": 0}]):
            for one in rule.get(side, [{}]):
                if "podSelector" not in one or "namespaceSelector" in one:
                    yield _called(one), port["port"]


def _called(peer: dict[str, Any]) -> str:
    if not peer:
        return "anyone"
    if "ipBlock" in peer:
        return _block(peer["ipBlock"])
    namespace = peer["namespaceSelector"].get("matchLabels", {}).get(NAMESPACE, "every namespace")
    selector = peer.get("podSelector", {})
    wanted = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
    wanted += [f"{each['key']}={'|'.join(each['values'])}" for each in selector.get("matchExpressions", ())]
    return f"{','.join(wanted)} in {namespace}" if wanted else str(namespace)


def _block(block: dict[str, Any]) -> str:
    """One address by itself; several are outside, if those of the node are excepted."""
    network = ip_network(block["cidr"])
    node = NODE[network.version]
    if network.num_addresses == 1:
        return str(network)
    is_safe = node in block.get("except", ()) or not network.overlaps(ip_network(node))
    return ELSEWHERE if is_safe else f"{network} with the addresses of the node"
