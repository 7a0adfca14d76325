"""Laws of what a cluster decides about pods: priority, the namespace's bounds, and how etcd here is reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from e2e.checkers.manifests.environment import environment, settings_of
from e2e.checkers.manifests.objects import (
    Manifest,
    Objects,
    Workload,
    named,
    of_kind,
    ours,
    quantity,
    workloads,
)
from e2e.checkers.manifests.scaling import bounds, scalers_of

SLACK: Final = 2.0
"""A bound beyond this times what is needed bounds nothing."""


def priorities_are_given(objects: Objects) -> list[str]:
    """If there is a PriorityClass, the services and etcd have it. It is no default for others."""
    classes = {str(each["metadata"]["name"]): each for each in of_kind(objects, "PriorityClass")}
    found = [
        f"{name} is the default of the cluster" for name, each in classes.items() if each["globalDefault"]
    ]
    for each in workloads(objects):
        given = each.pod.get("priorityClassName")
        if given is not None and given not in classes:
            found.append(f"{each.name} has the priority {given}, which nobody makes")
        if classes and given is None and (each.service or each.name == "etcd"):
            found.append(f"{each.name} is evicted for a pod that matters less")
    return found


def the_quota_admits_every_pod(objects: Objects) -> list[str]:
    """A ResourceQuota admits the most pods of each workload during a rollout, and still bounds the namespace."""
    return [
        f"the quota {quota['metadata']['name']}: {fault}"
        for quota in of_kind(objects, "ResourceQuota")
        for fault in _quota_faults(objects, quota)
    ]


def _quota_faults(objects: Objects, quota: Manifest) -> Iterator[str]:
    wanted = defaultdict[str, float](float)
    for each in workloads(objects):
        for name, amount in _needs(each):
            wanted[name] += amount * _pods_at_most(objects, each)
    wanted["services.loadbalancers"] = sum(
        each["spec"].get("type") == "LoadBalancer" for each in of_kind(objects, "Service")
    )
    for name, bound in quota["spec"]["hard"].items():
        if quantity(bound) < wanted[name]:
            yield f"{name} is {bound}, and {wanted[name]:.0f} is needed"
        if name in ("pods", "requests.cpu", "requests.memory") and quantity(bound) > SLACK * wanted[name]:
            yield f"{name} is {bound}, more than {SLACK:.0f} times what is needed"


def _needs(workload: Workload) -> Iterator[tuple[str, float]]:
    """What one pod asks for, by the names of a quota. Init containers ask for less than the container after them."""
    yield "pods", 1
    for container in workload.pod["containers"]:
        for kind, said in container["resources"].items():
            yield from ((f"{kind}.{name}", quantity(value)) for name, value in said.items())


def _pods_at_most(objects: Objects, workload: Workload) -> int:
    most = max(
        [workload.spec.get("replicas", 1), *(bounds(each)[1] for each in scalers_of(objects, workload))]
    )
    surge = workload.spec.get("strategy", {}).get("rollingUpdate", {}).get("maxSurge", 1)
    return int(most + (surge if workload.kind == "Deployment" else 0))


def containers_are_in_the_range(objects: Objects) -> list[str]:
    """No container asks for more than a LimitRange allows."""
    found = []
    for bounded in of_kind(objects, "LimitRange"):
        [most] = [each["max"] for each in bounded["spec"]["limits"] if each["type"] == "Container"]
        found += [
            f"{each.name} would not start: {name} {value} is more than {most[name]}"
            for each in workloads(objects)
            for container in each.containers
            for name, value in container["resources"]["limits"].items()
            if quantity(value) > quantity(most[name])
        ]
    return found


def etcd_and_its_clients_speak_the_same(objects: Objects) -> list[str]:
    """The services' addresses are those that etcd's members advertise, and a member with TLS demands certificates."""
    found = []
    for each in workloads(objects):
        if each.name == "etcd":
            found += [f"etcd: {fault}" for fault in _etcd_faults(objects, each)]
    return found


def _etcd_faults(objects: Objects, etcd: Workload) -> Iterator[str]:
    members = [f"etcd-{ordinal}" for ordinal in range(etcd.spec["replicas"])]
    said = [
        environment(objects, etcd, etcd.pod["containers"][0], {"metadata.name": name}) for name in members
    ]
    clients = sorted(each["ETCD_ADVERTISE_CLIENT_URLS"] for each in said)
    peers = ",".join(f"{each['ETCD_NAME']}={each['ETCD_INITIAL_ADVERTISE_PEER_URLS']}" for each in said)
    encrypted = clients[0].startswith("https://")
    for each in said:
        if each["ETCD_INITIAL_CLUSTER"] != peers:
            yield f"{each['ETCD_NAME']} looks for {each['ETCD_INITIAL_CLUSTER']}"
        for side in ("CLIENT", "PEER"):
            scheme = each[f"ETCD_LISTEN_{side}_URLS"].partition(":")[0]
            if scheme != ("https" if encrypted else "http"):
                yield f"{side.lower()}s speak {scheme} with {each['ETCD_NAME']}, and others do not"
        demanded = [each.get(f"ETCD_{side}CLIENT_CERT_AUTH") for side in ("", "PEER_")]
        if encrypted and (demanded != ["true", "true"] or not each.get("ETCD_PEER_CERT_ALLOWED_CN")):
            yield f"{each['ETCD_NAME']} takes everybody for a client or a member"
    for service in ours(objects):
        settings = settings_of(objects, service)
        if sorted(settings.etcd_endpoints) != clients:
            yield f"{service.name} looks for it at {settings.etcd_endpoints}"
        if encrypted and not (settings.etcd_ca and settings.etcd_cert and settings.etcd_key):
            yield f"{service.name} has no certificate for it"
    yield from _member_faults(objects, etcd, members, encrypted)


def _member_faults(objects: Objects, etcd: Workload, members: list[str], encrypted: bool) -> Iterator[str]:
    """The members' certificate has their names, and the CA's key is in no pod."""
    mounted = {
        volume["secret"]["secretName"]
        for each in workloads(objects)
        for volume in each.pod.get("volumes", ())
        if "secret" in volume
    }
    for each in of_kind(objects, "Certificate"):
        if each["spec"].get("isCA") and each["spec"]["secretName"] in mounted:
            yield f"the key of the CA {each['metadata']['name']} is in a pod"
    certificate = named(objects, "Certificate", "etcd-member")
    if encrypted and (certificate is None or certificate["spec"]["secretName"] not in mounted):
        yield "its members have no certificate"
    elif certificate is not None:
        names = {f"{name}.{etcd.spec['serviceName']}" for name in members}
        if set(certificate["spec"]["dnsNames"]) != names:
            yield f"its certificate is for {certificate['spec']['dnsNames']}"
