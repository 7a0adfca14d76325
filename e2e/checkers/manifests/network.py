"""Laws of the network: which flows the network policies allow together, and who comes from the internet.

A packet passes if both sides allow it: the sender's egress and the receiver's ingress. If no policy of a direction
selects a pod, the pod is open in that direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, ip_network
from typing import Any, Final

from kafscale.frontdoor.settings import FrontdoorSettings

from e2e.checkers.manifests.environment import settings_of
from e2e.checkers.manifests.objects import (
    CONSOLE,
    Manifest,
    Objects,
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
IN_TRANSACTIONS: Final[frozenset[Edge]] = frozenset(
    {
        ("kafscale-produce", "kafscale-coordinator", GRPC),
        ("kafscale-coordinator", "kafscale-produce", GRPC),
        ("kafscale-coordinator", "kafscale-coordinator", GRPC),
    }
)
"""Who calls whom in transactions: Join and Over, End, and both. What is open has to end also while they are off."""
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
AWS: Final = "service.beta.kubernetes.io/aws-load-balancer"
INTERNAL: Final = {
    f"{AWS}-scheme": "internal",
    f"{AWS}-internal": "true",
    "service.beta.kubernetes.io/azure-load-balancer-internal": "true",
    "networking.gke.io/load-balancer-type": "Internal",
    "service.beta.kubernetes.io/openstack-internal-load-balancer": "true",
    "service.beta.kubernetes.io/oci-load-balancer-internal": "true",
}
"""How each cloud is asked for an address of the private network."""


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
    """The needed flows: every pod of KafScale may reach etcd and the store, front doors may reach services, and
    coordinators and owners of partitions each other."""
    pods = _everybody(objects)
    serving = [each.name for each in ours(objects)]
    found = {(name, *resolver) for name in pods for resolver in RESOLVERS}
    found |= {("kafscale-frontdoor", f"kafscale-{each}", GRPC) for each in ASKED} | IN_TRANSACTIONS
    found |= {(MONITORING, name, HTTP) for name in serving}
    found.add(("anyone", "kafscale-frontdoor", KAFKA))
    if CONSOLE in pods:  # nobody reaches its page: `kubectl port-forward` comes from inside the pod
        found |= {(CONSOLE, "kafscale-frontdoor", KAFKA), (MONITORING, CONSOLE, HTTP)}
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
            taken, of_anyone = (
                _between(policies, its_labels, labels, "Ingress"),
                _of_anyone(policies, its_labels),
            )
            found |= {(name, other, port) for port in sent & (taken | of_anyone)}
            found |= {(name, f"half of {other}", port) for port in (sent ^ taken) - of_anyone}
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


def _of_anyone(policies: list[dict[str, Any]], labels: Mapping[str, str]) -> set[int]:
    """The ports at which these pods take whoever comes."""
    rules = _rules(policies, labels, "Ingress")
    return {port["port"] for rule in rules if "from" not in rule for port in rule.get("ports", ())} - {0}


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


def only_clients_that_log_in_come_from_the_internet(objects: Objects) -> list[str]:
    """A load balancer is internal for each cloud and takes private addresses only, unless its port has TLS, logins
    and ACLs. Then it is public for each cloud, or internal for each. No Service opens a port of every node.
    """
    found = []
    for each in of_kind(objects, "Service"):
        name, kind = each["metadata"]["name"], each["spec"].get("type", "ClusterIP")
        if kind not in ("ClusterIP", "LoadBalancer") or each["spec"].get("externalIPs"):
            found.append(f"the Service {name} is reached at addresses of nodes")
        if kind == "LoadBalancer":
            faults = [*_public_faults(each)]
            if faults and _logins(objects):
                faults = [*_half_public_faults(each)]
            found += [f"the Service {name}: {fault}" for fault in faults]
    return found


def _public_faults(service: Manifest) -> Iterator[str]:
    annotations = service["metadata"].get("annotations", {})
    missing = [key for key, value in INTERNAL.items() if annotations.get(key) != value]
    if missing:
        yield f"it is on the internet where a cloud needs {', '.join(missing)}"
    ranges = service["spec"].get("loadBalancerSourceRanges", ())
    if not ranges or not all(_private(each) for each in ranges):
        yield "it takes clients from the internet"


def _half_public_faults(service: Manifest) -> Iterator[str]:
    annotations = service["metadata"].get("annotations", {})
    left = [key for key in INTERNAL if key in annotations and annotations[key] != "internet-facing"]
    if left:
        yield f"it is public, and still has {', '.join(left)}"


def _private(cidr: str) -> bool:
    """Of RFC 1918, or of RFC 6598, which clouds give to pods and private links."""
    network = ip_network(cidr)
    shared = isinstance(network, IPv4Network) and network.subnet_of(IPv4Network("100.64.0.0/10"))
    return network.is_private or shared


def _logins(objects: Objects) -> bool:
    """Whether clients outside need TLS, a login and ACLs."""
    for each in ours(objects):
        settings = settings_of(objects, each)
        if isinstance(settings, FrontdoorSettings):
            protocols = {name: one.protocol.value for name, one in settings.securities().items()}
            return protocols.get("OUTSIDE") == "SASL_SSL" and settings.authorizer != "none"
    return False
