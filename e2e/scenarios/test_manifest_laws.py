"""The laws of the manifests find the fault that each test plants in the rendered objects."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import pytest

from e2e.checkers.manifests.laws import LAWS
from e2e.checkers.manifests.objects import COMPONENT, CONSOLE, NAME
from e2e.harness.manifests import Manifest, Refused, check, patched, rendered

GONE: Final = object()
POD: Final = "spec template spec"
SERVICE: Final = f"{POD} containers service"
DEV, KEDA, CACHE, ACLS, ETCD, JOBS, PAGE = "dev", "keda", "cache", "acls", "etcd", "jobs", "page"
STARTS, ALONE = "the_console_starts", "the_console_is_one_process_at_its_ports"
OUTSIDE: Final = "configMapGenerator: [{name: kafscale-outside, literals: ['domain=kafka.example.com']}]\n"
ADDRESS: Final = (
    "configMapGenerator: [{name: kafscale-outside, literals: ['address=kafka.example.com:9094']}]\n"
)
PARTS: Final = ("external-stores", "etcd-ca", "per-pod-addresses", "prometheus", "keda")
PUBLIC: Final = ("one-address", "internal-tls", "tls", "authorization", "public-address")


@dataclass(frozen=True, slots=True)
class Fault:
    """`value` at `path` of an object of a kind. A path's steps are keys; of a list, a number or an element's name.

    A path of no step is the object itself, which can be gone.
    """

    law: str
    kind: str
    name: str
    path: str
    value: Any
    where: str = DEV


def of_pod(law: str, path: str, value: Any, name: str = "kafscale-produce") -> Fault:
    kind = "StatefulSet" if name in {"kafscale-frontdoor", "etcd", "object-store"} else "Deployment"
    return Fault(law, kind, name, f"{POD} {path}".strip(), value)


def of_service(law: str, path: str, value: Any, name: str = "kafscale-produce") -> Fault:
    return of_pod(law, f"containers service {path}", value, name)


def of_policy(name: str, path: str, value: Any) -> Fault:
    return Fault(ONLY, "NetworkPolicy", name, path, value)


def of_console(law: str, path: str, value: Any) -> Fault:
    return Fault(law, "Deployment", CONSOLE, path, value, PAGE)


FORGOTTEN: Final = "front_doors_change_after_old_addresses_are_forgotten"
MEMORY, LEAVING = "memory_holds_what_the_settings_allow", "leaving_takes_less_than_the_grace"
ASKED: Final = "who_decides_is_asked_by_front_doors_alone"
LISTENS, TAKEN = "listens_where_its_ports_are", "settings_are_taken"
ABOVE, PLAIN, THERE = "variables_stand_above_their_use", "no_secret_is_plain", "what_is_referred_to_is_there"
ONLY: Final = "only_who_must_is_let_through"
INTERNET: Final = "only_clients_that_log_in_come_from_the_internet"
MOUNTED, CA_OF_ETCD = "files_that_settings_name_are_mounted", "volumeMounts etcd-ca"
JOB: Final = f"spec jobTemplate {POD} containers job"
DOOR: Final = "kafscale-frontdoor"

FAULTS: Final = (
    of_service(MEMORY, "resources limits memory", "700Mi"),
    of_service(
        MEMORY,
        "env KAFSCALE_CACHE_BYTES value",
        "1073741824",
        "kafscale-fetch",
    ),
    of_pod(LEAVING, "terminationGracePeriodSeconds", 30),
    of_service(LEAVING, "lifecycle preStop sleep seconds", 25, DOOR),
    of_service(FORGOTTEN, "env KAFSCALE_FRONTDOOR_ANNOUNCE_AFTER_MS", GONE, DOOR),
    Fault(
        "members_of_etcd_change_after_old_addresses_are_forgotten",
        "StatefulSet",
        "etcd",
        "spec minReadySeconds",
        30,
    ),
    Fault(
        FORGOTTEN,
        "StatefulSet",
        DOOR,
        "spec minReadySeconds",
        30,
    ),
    of_service("variables_are_settings", "env KAFSCALE_MEMORY_BYTES name", "KAFSCALE_MEMORY"),
    of_service("variables_are_settings", "env KAFSCALE_MEMORY_BYTES name", "KAFSCALE_FETCH_GETS"),
    of_service(TAKEN, "env KAFSCALE_MEMORY_BYTES value", "512Mi"),
    of_service(TAKEN, "env KAFSCALE_S3_ACCESS_KEY_ID", GONE),
    of_service(ABOVE, "env POD_IP", GONE),
    of_pod(ABOVE, "containers etcd env POD_NAME name", "POD", "etcd"),
    of_service(
        PLAIN, "env KAFSCALE_S3_SECRET_ACCESS_KEY", {"name": "KAFSCALE_S3_SECRET_ACCESS_KEY", "value": "x"}
    ),
    Fault(PLAIN, "ConfigMap", "kafscale-settings", "data KAFSCALE_ETCD_PASSWORD", "x"),
    of_service(THERE, "envFrom 0 configMapRef name", "kafscale-settings"),
    of_service(THERE, "env KAFSCALE_ETCD_USER valueFrom secretKeyRef optional", GONE),
    of_service(THERE, "env KAFSCALE_ETCD_USER valueFrom secretKeyRef name", "kafscale-secrets"),
    Fault(
        THERE, "StatefulSet", DOOR, f"{SERVICE} env OUTSIDE_DOMAIN valueFrom configMapKeyRef key", "a", KEDA
    ),
    Fault(THERE, "Deployment", "kafscale-fetch", f"{POD} volumes etcd-ca secret secretName", "etcd-ca", KEDA),
    Fault(LISTENS, "ConfigMap", "kafscale-settings", "data KAFSCALE_GRPC_LISTEN", "127.0.0.1:7000"),
    Fault(LISTENS, "ConfigMap", "kafscale-settings", "data KAFSCALE_HTTP_LISTEN", GONE),
    of_service(LISTENS, "env KAFSCALE_GRPC_ADVERTISE value", "$(POD_NAME):7000"),
    of_service(LISTENS, "ports kafka containerPort", 9093, DOOR),
    of_service(LISTENS, "env KAFSCALE_LISTENERS value", "PLAINTEXT://0.0.0.0:9092", DOOR),
    of_service(LISTENS, "env KAFSCALE_ADVERTISED_LISTENERS value", "PLAINTEXT://kafscale:9092", DOOR),
    of_service(LISTENS, "env KAFSCALE_ADVERTISED_LISTENERS value", "INSIDE://kafscale:9092", DOOR),
    Fault(
        LISTENS,
        "StatefulSet",
        DOOR,
        f"{SERVICE} env KAFSCALE_ADVERTISED_LISTENERS value",
        "OUTSIDE://a:1",
        KEDA,
    ),
    Fault(ASKED, "Deployment", "kafscale-fetch", f"{SERVICE} env", [], ACLS),
    Fault(
        ASKED,
        "Deployment",
        "kafscale-admin",
        f"{SERVICE} env KAFSCALE_BOOTSTRAP_USERS_FILE",
        {"name": "KAFSCALE_SUPER_USERS", "value": "User:eve"},
        ACLS,
    ),
    Fault(
        ASKED,
        "StatefulSet",
        DOOR,
        f"{SERVICE} env KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP value",
        "OUTSIDE:SSL",
        ACLS,
    ),
    of_policy("kafscale-nothing-else", "", GONE),
    of_policy("kafscale-nothing-else", "spec policyTypes", ["Egress"]),
    of_policy("kafscale-names", "", GONE),
    of_policy(DOOR, "spec egress", []),
    of_policy(DOOR, "spec ingress 0 ports 0 port", 9093),
    of_policy("kafscale-asked-by-frontdoor", "spec ingress 0 from", [{"podSelector": {}}]),
    of_policy("kafscale-asked-by-frontdoor", "spec ingress 0 from", GONE),
    of_policy(
        "kafscale-asked-by-frontdoor", "spec ingress 0 from 0 podSelector matchLabels", {NAME: "kafscale"}
    ),
    of_policy("kafscale-to-etcd", "spec podSelector matchLabels", {NAME: "kafscale", COMPONENT: "produce"}),
    of_policy("etcd", "spec ingress 0 from 0", {"namespaceSelector": {}}),
    of_policy("kafscale-names", "spec egress 0 to 1", GONE),
    of_policy("kafscale-names", "spec egress 1", GONE),
    of_policy("kafscale-names", "spec egress 0 to 0 podSelector", GONE),
    of_policy("kafscale-scraped", "", GONE),
    of_policy("kafscale-scraped", "spec ingress 0 from 0 namespaceSelector", {}),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-external-object-store", "spec egress 0 ports 0 port", 80, KEDA),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-external-etcd", "spec egress 0 to 0 ipBlock except", [], KEDA),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-pod-identity", "", GONE, KEDA),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-pod-identity", "spec podSelector matchExpressions", [], KEDA),
    Fault(
        *(ONLY, "NetworkPolicy", "kafscale-to-pod-identity", "spec egress 0 to 0 ipBlock cidr"),
        *("169.254.0.0/16", KEDA),
    ),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-instance-metadata", "spec egress 0 ports 0 port", 1, ACLS),
    Fault(ONLY, "NetworkPolicy", "kafscale-frontdoor-to-frontdoor", "", GONE, ACLS),
    Fault(ONLY, "StatefulSet", DOOR, f"{SERVICE} env KAFSCALE_QUOTA_SCOPE value", "broker", ACLS),
    of_policy("kafscale-coordinator-in-transactions", "", GONE),
    of_policy("kafscale-produce-in-transactions", "spec egress", []),
    of_policy("kafscale-produce-in-transactions", "spec ingress 0 from 0 podSelector matchExpressions", []),
    Fault(INTERNET, "Service", "kafscale-outside", "spec loadBalancerSourceRanges", GONE, KEDA),
    Fault(INTERNET, "Service", f"{DOOR}-2", "spec loadBalancerSourceRanges 0", "0.0.0.0/0", KEDA),
    Fault(
        INTERNET,
        "Service",
        f"{DOOR}-2",
        "metadata annotations networking.gke.io/load-balancer-type",
        GONE,
        KEDA,
    ),
    Fault(INTERNET, "Service", "kafscale", "spec type", "NodePort"),
    Fault(INTERNET, "ConfigMap", "kafscale-settings", "data KAFSCALE_AUTHORIZER", "none", ACLS),
    Fault(
        *(
            INTERNET,
            "Service",
            "kafscale-outside",
            "metadata annotations networking.gke.io/load-balancer-type",
        ),
        *("null", ACLS),
    ),
    Fault(
        *(INTERNET, "StatefulSet", DOOR, f"{SERVICE} env KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP value"),
        *("OUTSIDE:SSL", ACLS),
    ),
    Fault(MOUNTED, "Deployment", "kafscale-admin", f"{SERVICE} {CA_OF_ETCD}", GONE, JOBS),
    Fault(MOUNTED, "CronJob", "kafscale-backup", f"{JOB} {CA_OF_ETCD}", GONE, JOBS),
    Fault(MOUNTED, "CronJob", "kafscale-lag", f"{JOB} {CA_OF_ETCD}", GONE, JOBS),
    Fault(ONLY, "NetworkPolicy", "redis", "spec ingress 0 from 0 podSelector matchExpressions", [], CACHE),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-collector", "", GONE, CACHE),
    Fault(ONLY, "ConfigMap", "kafscale-settings", "data KAFSCALE_OTLP_ENDPOINT", GONE, CACHE),
    Fault(TAKEN, "ConfigMap", "kafscale-settings", "data KAFSCALE_TRACE_RATIO", "1%", CACHE),
    of_console(STARTS, f"{SERVICE} env KAFSCALE_CONSOLE_LISTEN value", "0.0.0.0"),
    of_console(STARTS, f"{SERVICE} env KAFSCALE_CONSOLE_LISTEN name", "KAFSCALE_CONSOLE_HOST"),
    of_console(STARTS, f"{SERVICE} env KAFSCALE_CONSOLE_HTTP_LISTEN value", "8000"),
    of_console(STARTS, f"{SERVICE} env KAFSCALE_GRPC_ADVERTISE value", "7000"),
    of_console(ALONE, "spec replicas", 2),
    of_console(ALONE, "spec strategy", GONE),
    of_console(ALONE, f"{SERVICE} env KAFSCALE_CONSOLE_HTTP_LISTEN", GONE),
    of_console(ALONE, f"{SERVICE} ports page containerPort", 8481),
    of_console(THERE, f"{POD} volumes etcd-ca secret secretName", "etcd-ca"),
    of_console(MOUNTED, f"{SERVICE} {CA_OF_ETCD}", GONE),
    Fault(ONLY, "NetworkPolicy", CONSOLE, "spec egress", [], PAGE),
    Fault(ONLY, "NetworkPolicy", CONSOLE, "spec ingress 0 ports 0 port", 8480, PAGE),
    Fault(
        ONLY, "NetworkPolicy", CONSOLE, "spec egress 0 to 0 podSelector matchLabels", {NAME: "kafscale"}, PAGE
    ),
    Fault(ONLY, "NetworkPolicy", "kafscale-to-external-etcd", "spec egress 0 ports 0 port", 1, PAGE),
    Fault(INTERNET, "Service", CONSOLE, "spec type", "LoadBalancer", PAGE),
    Fault(TAKEN, "Secret", "kafscale-redis", "data KAFSCALE_REDIS_URL", "cmVkaXM=", CACHE),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Manifest]]:
    return {
        DEV: rendered("dev"),
        CACHE: patched("dev", "", tmp_path_factory.mktemp("overlay"), ["redis", "traces"]),
        ACLS: patched(
            "production",
            ADDRESS,
            tmp_path_factory.mktemp("overlay"),
            [*PUBLIC, "instance-metadata", "cluster-quotas", "limits"],
        ),
        ETCD: rendered("production-etcd"),
        JOBS: patched("production", "", tmp_path_factory.mktemp("overlay"), ["backup", "spark-cronjobs"]),
        PAGE: patched("production", "", tmp_path_factory.mktemp("overlay"), ["console"]),
        KEDA: patched("../base", OUTSIDE, tmp_path_factory.mktemp("overlay"), PARTS),
    }


def test_each_law_has_a_fault_planted() -> None:
    assert {each.law for each in FAULTS} == set(LAWS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.law}-{fault.name}-{fault.path}")
def test_a_planted_fault_is_seen(sound: Mapping[str, list[Manifest]], fault: Fault) -> None:
    law = LAWS[fault.law]
    assert law(sound[fault.where]) == []
    assert law(planted(sound[fault.where], fault)) != []


@pytest.mark.parametrize(("path", "value"), [("spec pollingIntervall", 3), ("spec triggers 0 type", 3)])
def test_a_custom_resource_that_its_definition_does_not_allow_is_refused(
    sound: Mapping[str, list[Manifest]], path: str, value: Any
) -> None:
    fault = Fault("", "ScaledObject", "kafscale-produce", path, value)
    objects = planted(sound[KEDA], fault)
    [wrong] = [each for each in objects if each["kind"] == fault.kind and named_so(each, fault.name)]
    with pytest.raises(Refused, match="kafscale-produce"):
        check(wrong, "1.31")


def planted(objects: list[Manifest], fault: Fault) -> list[Manifest]:
    """A copy of the objects with the fault in it."""
    made = deepcopy(objects)
    [found] = [each for each in made if each["kind"] == fault.kind and named_so(each, fault.name)]
    if not fault.path:
        return [each for each in made if each is not found]
    *steps, last = fault.path.split(" ")
    at: Any = found
    for step in steps:
        at = at[place(at, step)]
    if fault.value is GONE:
        del at[place(at, last)]
    else:
        at[place(at, last)] = fault.value
    return made


def named_so(manifest: Manifest, name: str) -> bool:
    """Generated ones have the hash of their content behind."""
    own = str(manifest["metadata"]["name"])
    return own == name or (manifest["kind"] in {"ConfigMap", "Secret"} and own.rpartition("-")[0] == name)


def place(at: Any, step: str) -> Any:
    if isinstance(at, dict):
        return step
    return int(step) if step.isdecimal() else [each["name"] for each in at].index(step)
