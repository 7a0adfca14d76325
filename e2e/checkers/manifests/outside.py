"""Laws of clients outside the cluster: who gets in, and which names lead to the front doors."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network
from typing import Any, Final

from kafscale.frontdoor.listeners.listeners import advertised, parse
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.storage.membership.members import Listener

from e2e.checkers.manifests.environment import settings_of
from e2e.checkers.manifests.objects import POD_NAME, Manifest, Objects, Workload, of_kind, ours, ports

EXTERNAL_DNS: Final = "external-dns.alpha.kubernetes.io/hostname"
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


def names_outside_are_the_advertised_ones(objects: Objects) -> list[str]:
    """external-dns makes the name that a front door advertises to clients outside. A Service for one pod has the
    name of that pod.
    """
    doors = [each for each in ours(objects) if each.service == "frontdoor"]
    return [fault for door in doors for fault in _name_faults(objects, door)]


def _name_faults(objects: Objects, door: Workload) -> Iterator[str]:
    balanced = [each for each in of_kind(objects, "Service") if each["spec"].get("type") == "LoadBalancer"]
    shown = _outside(objects, door)
    if shown is None:
        yield from (f"{each['metadata']['name']} is for clients outside: no listener is" for each in balanced)
        return
    per_pod = any(POD_NAME in each["spec"]["selector"] for each in balanced)
    for each in balanced:
        name = each["metadata"].get("annotations", {}).get(EXTERNAL_DNS)
        pod = each["spec"]["selector"].get(POD_NAME)
        wanted = _host_of(shown, pod or "bootstrap") if per_pod else shown.host
        if name != wanted:
            yield f"the Service {each['metadata']['name']} has the name {name}, and clients look for {wanted}"
        if shown.port not in [port["port"] for port in each["spec"]["ports"]]:
            yield f"the Service {each['metadata']['name']} has no port {shown.port}"


def _outside(objects: Objects, door: Workload) -> Listener | None:
    """The address that a front door advertises to clients outside."""
    settings = settings_of(objects, door)
    assert isinstance(settings, FrontdoorSettings), door.name
    if "outside" not in ports(_container(door)):
        return None
    listening = parse(settings.listeners, setting="KAFSCALE_LISTENERS")
    shown = advertised(
        listening, settings.advertised_listeners, setting="KAFSCALE_ADVERTISED_LISTENERS", own_host=""
    )
    return next((each for each in shown if each.name == "OUTSIDE"), None)


def _host_of(shown: Listener, label: str) -> str:
    """The advertised host with another first label, since pods of a StatefulSet share the rest."""
    return f"{label}.{shown.host.partition('.')[2]}"


def _container(door: Workload) -> dict[str, Any]:
    return dict(door.pod["containers"][0])
