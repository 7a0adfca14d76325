"""Laws of a pod's environment: every variable is a setting, the service accepts the values, and the pod fits them.

`env` is read as by a kubelet: a value may refer to variables above it, except those from `envFrom`. Other references
stay as text.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafscale.admin.settings import AdminSettings
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.fetch.settings import FetchSettings
from kafscale.frontdoor.listeners.listeners import ListenersWrong, advertised, parse
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.produce.settings import ProduceSettings
from kafscale.runtime.settings import ServiceSettings
from kafscale.upkeep.settings import UpkeepSettings
from pydantic import SecretStr, ValidationError

from e2e.checkers.manifests.objects import (
    Objects,
    Workload,
    named,
    of_kind,
    ours,
    pods,
    ports,
    quantity,
    workloads,
)

SETTINGS: Final[Mapping[str, type[ServiceSettings]]] = {
    "frontdoor": FrontdoorSettings,
    "produce": ProduceSettings,
    "fetch": FetchSettings,
    "coordinator": CoordinatorSettings,
    "admin": AdminSettings,
    "upkeep": UpkeepSettings,
}
PREFIX: Final = "KAFSCALE_"
PROCESS_BYTES: Final = 256 << 20
"""What a service's process takes without requests and caches."""
LEAVE_S: Final = 5
"""Streams end and the registration is taken back after the drain: `runtime/grpc_server.py`, `runtime/process.py`."""
DNS_TTL_S: Final = 30
"""How long CoreDNS, NodeLocal DNSCache and Java's clients keep an address."""
DNS_MARGIN_S: Final = 10
REFERENCE: Final = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
HASHED: Final = re.compile(r".+-[a-z0-9]{10}")
BEFOREHAND: Final = {
    "kafscale-credentials",
    "kafscale-etcd-ca",
    "kafscale-etcd-certificate",
    "kafscale-redis-keys",
    "kafscale-tls",
    "kafscale-first-users",
}
"""Secrets that the operator makes."""
FILES: Final = "/etc/kafscale/"
FIELDS: Final = {"metadata.name": "kafscale-0", "status.podIP": "10.0.0.9"}
"""Values for the fields of a pod that does not run."""
SECRETS: Final = {"KAFSCALE_REDIS_URL": "rediss://:password@redis.example.com:6379"}
"""Values for the secrets that must have a certain form."""


def environment(
    objects: Objects, workload: Workload, container: Mapping[str, Any], fields: Mapping[str, str] = FIELDS
) -> dict[str, str]:
    """The environment that the kubelet would create, with placeholders for values that only it knows. `fields`:
    the pod's.
    """
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        manifest = named(objects, "ConfigMap", source.get("configMapRef", {}).get("name", ""))
        found.update((manifest or {}).get("data", {}))
    above: dict[str, str] = {}
    for variable in container.get("env", ()):
        value = _value(objects, workload, variable, above, fields)
        if value is not None:
            above[variable["name"]] = value
    return found | above


def _value(
    objects: Objects,
    workload: Workload,
    variable: dict[str, Any],
    above: Mapping[str, str],
    fields: Mapping[str, str],
) -> str | None:
    """None if an optional key is not in its Secret. A Secret that exists before the overlay has all keys."""
    if "value" in variable:
        return REFERENCE.sub(lambda found: above.get(found[1], found[0]), variable["value"])
    source = variable["valueFrom"]
    if "fieldRef" in source:
        path = source["fieldRef"]["fieldPath"]
        return workload.namespace if path == "metadata.namespace" else fields.get(path, "")
    if "configMapKeyRef" in source:
        manifest = named(objects, "ConfigMap", source["configMapKeyRef"]["name"]) or {}
        return str(manifest.get("data", {}).get(source["configMapKeyRef"]["key"], ""))
    wanted = source["secretKeyRef"]
    secret = named(objects, "Secret", wanted["name"])
    if secret is None:
        return SECRETS.get(wanted["key"], "a-secret")
    held = secret.get("data", {}).get(wanted["key"])
    return None if held is None else base64.b64decode(held).decode()


def settings_of(objects: Objects, workload: Workload) -> ServiceSettings:
    """What the service reads from its pod's environment. Raises ValidationError."""
    assert workload.service is not None, workload.name
    kind = SETTINGS[workload.service]
    variables = environment(objects, workload, workload.pod["containers"][0])
    fields: dict[str, Any] = {name.removeprefix(PREFIX).lower(): value for name, value in variables.items()}
    return kind(**{name: value for name, value in fields.items() if name in kind.model_fields})


def variables_are_settings(objects: Objects) -> list[str]:
    """Services ignore unknown variables, so a typing error in a name would have no effect."""
    found = []
    for each in ours(objects):
        known = {f"{PREFIX}{name}".upper() for name in SETTINGS[each.service or ""].model_fields}
        for container in each.containers:
            names = environment(objects, each, container)
            strange = [name for name in names if name.startswith(PREFIX) and name not in known]
            found += [f"{each.name}: {name} is no setting of {each.service}" for name in strange]
    return found


def settings_are_taken(objects: Objects) -> list[str]:
    found = []
    for each in ours(objects):
        try:
            settings_of(objects, each)
        except ValidationError as trouble:
            found.append(f"{each.name} would end with code 2: {trouble}")
    return found


def variables_stand_above_their_use(objects: Objects) -> list[str]:
    return [fault for each in workloads(objects) for fault in _reference_faults(each)]


def _reference_faults(workload: Workload) -> Iterator[str]:
    for container in workload.containers:
        above = set[str]()
        for variable in container.get("env", ()):
            for name in REFERENCE.findall(variable.get("value", "")):
                if name not in above:
                    yield f"{workload.name}: {variable['name']} uses {name}, which does not stand above it"
            above.add(variable["name"])
        for argument in [*container.get("command", ()), *container.get("args", ())]:
            for name in REFERENCE.findall(argument):
                if name not in above:
                    yield f"{workload.name}: an argument uses {name}, which is not there"


def no_secret_is_plain(objects: Objects) -> list[str]:
    """Secret values are references to Secrets, in every container and every ConfigMap."""
    secret = {
        f"{PREFIX}{name}".upper()
        for kind in SETTINGS.values()
        for name, field in kind.model_fields.items()
        if SecretStr in getattr(field.annotation, "__args__", (field.annotation,)) or name.endswith("key_id")
    } | {"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"}
    found = [
        f"{each.name}: {variable['name']} is written there in plain text"
        for each in workloads(objects)
        for container in each.containers
        for variable in container.get("env", ())
        if variable["name"] in secret and "secretKeyRef" not in variable.get("valueFrom", {})
    ]
    return found + [
        f"the ConfigMap {each['metadata']['name']} has {name}"
        for each in of_kind(objects, "ConfigMap")
        for name in each.get("data", {})
        if name in secret
    ]


def what_is_referred_to_is_there(objects: Objects) -> list[str]:
    """ConfigMaps have a hash of their content in the name, or pods have it in an annotation, so a change restarts
    pods. Secrets are in the overlay, or exist.
    """
    return [fault for each in workloads(objects) for fault in _source_faults(objects, each)]


def _source_faults(objects: Objects, workload: Workload) -> Iterator[str]:
    sources = [
        *(source for each in workload.containers for source in each.get("envFrom", ())),
        *(
            one["valueFrom"]
            for each in workload.containers
            for one in each.get("env", ())
            if "valueFrom" in one
        ),
    ]
    for source in sources:
        config = source.get("configMapRef") or source.get("configMapKeyRef")
        summed = config and f"checksum/{config['name']}" in workload.annotations
        if config and not summed and not HASHED.fullmatch(config["name"]):
            yield f"{workload.name}: a change of the ConfigMap {config['name']} would restart nobody"
        manifest = named(objects, "ConfigMap", config["name"]) if config else None
        if config and (manifest is None or config.get("key", "") not in {"", *manifest["data"]}):
            yield f"{workload.name}: no ConfigMap {config['name']} with {config.get('key', 'settings')}"
    keys = [source["secretKeyRef"] for source in sources if "secretKeyRef" in source]
    for key in keys:
        held = (named(objects, "Secret", key["name"]) or {"data": {key["key"]: ""}}).get("data", {})
        if key["key"] not in held and not key.get("optional"):
            yield f"{workload.name}: {key['key']} is not in the Secret {key['name']}"
    secrets = [key["name"] for key in keys]
    secrets += [one["secret"]["secretName"] for one in workload.pod.get("volumes", ()) if "secret" in one]
    by_cert_manager = {each["spec"]["secretName"] for each in of_kind(objects, "Certificate")}
    for name in secrets:
        if name not in {*BEFOREHAND, *by_cert_manager} and named(objects, "Secret", name) is None:
            yield f"{workload.name}: nobody makes the Secret {name}"


def files_that_settings_name_are_mounted(objects: Objects) -> list[str]:
    """In services and in jobs. Whoever has `kafscale-settings` opens the files that it names."""
    found = []
    for name, pod in pods(objects):
        for container in pod["containers"]:
            places = tuple(f"{each['mountPath']}/" for each in container.get("volumeMounts", ()))
            found += [
                f"{name}: {variable} names {value}, which is not mounted"
                for variable, value in _values(objects, container).items()
                if value.startswith(FILES) and not value.startswith(places)
            ]
    return found


def _values(objects: Objects, container: Mapping[str, Any]) -> dict[str, str]:
    """Those that the manifests have, of ConfigMaps and in plain."""
    values: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        manifest = named(objects, "ConfigMap", source.get("configMapRef", {}).get("name", ""))
        values |= (manifest or {}).get("data", {})
    return values | {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}


def listens_where_its_ports_are(objects: Objects) -> list[str]:
    """gRPC and HTTP are open at every IPv4 address, the listeners also at IPv6, and the advertised address is the
    pod's.
    """
    found = []
    for each in ours(objects):
        settings, known = settings_of(objects, each), ports(each.pod["containers"][0])
        for name, address in (("grpc", settings.grpc_listen), ("http", settings.http_listen)):
            if address != f"0.0.0.0:{known.get(name)}":
                found.append(f"{each.name} listens at {address}, and its port {name} is {known.get(name)}")
        if settings.grpc_advertise != f"{FIELDS['status.podIP']}:{known.get('grpc')}":
            found.append(f"{each.name} says that it is at {settings.grpc_advertise}")
        if isinstance(settings, FrontdoorSettings):
            found += _listener_faults(objects, each, settings)
    return found


def _listener_faults(objects: Objects, workload: Workload, settings: FrontdoorSettings) -> Iterator[str]:
    listening = parse(settings.listeners, setting="KAFSCALE_LISTENERS")
    opened = sorted(ports(workload.pod["containers"][0]).values())
    heard = sorted({each.port for each in listening} | {7000, 8000})
    if heard != opened or any(each.host for each in listening):
        yield f"{workload.name} listens at {settings.listeners}, and its ports are {opened}"
    try:
        shown = advertised(
            listening, settings.advertised_listeners, setting="KAFSCALE_ADVERTISED_LISTENERS", own_host=""
        )
    except ListenersWrong as wrong:
        yield f"{workload.name}: {wrong}"
        return
    if sorted(each.name for each in shown) != sorted(each.name for each in listening):
        yield f"{workload.name} listens for clients and advertises no address"
    inside = f"{FIELDS['metadata.name']}.{workload.spec['serviceName']}.{workload.namespace}.svc"
    if shown[0].host != inside:
        yield f"{workload.name}: advertises {shown[0].host} to clients inside, and a pod's name is {inside}"


def who_decides_is_asked_by_front_doors_alone(objects: Objects) -> list[str]:
    """An authorizer decides about the principal that a front door sends. So all services have the same one, and a
    certificate, without which others could send one. A listener with logins has users and TLS.
    """
    found = []
    services = [(each, settings_of(objects, each)) for each in ours(objects)]
    rules = {(each.authorizer, each.super_users, each.allow_everyone_if_no_acl_found) for _, each in services}
    if len(rules) > 1:
        found.append(f"services do not decide by the same rules: {sorted(map(str, rules))}")
    for workload, settings in services:
        asked = workload.service not in ("upkeep", None)  # nobody sends it requests
        if asked and settings.authorizer != "none" and settings.grpc_certificate is None:
            found.append(f"{workload.name} accepts requests without a certificate")
        if (
            isinstance(settings, FrontdoorSettings)
            and settings.authorizer != "none"
            and not settings.has_logins
        ):
            found.append(f"{workload.name} has an authorizer, and no client can log in")
    return found


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


def leaving_takes_less_than_the_grace(objects: Objects) -> list[str]:
    found = []
    for each in ours(objects):
        takes_s = _pre_stop_s(each) + settings_of(objects, each).drain_timeout_ms / 1000 + LEAVE_S
        grace_s = each.pod.get("terminationGracePeriodSeconds", 30)
        if grace_s <= takes_s:
            found.append(f"{each.name} is killed after {grace_s} s, and may need {takes_s:.0f}")
    return found


def front_doors_change_after_old_addresses_are_forgotten(objects: Objects) -> list[str]:
    """The old address of a front door is forgotten before Metadata lists it again and before a roll stops the next."""
    found = []
    for each in ours(objects):
        settings = settings_of(objects, each)
        if isinstance(settings, FrontdoorSettings):
            announced_s = settings.frontdoor_announce_after_ms / 1000
            if announced_s <= DNS_TTL_S:
                found.append(
                    f"{each.name}: announced after {announced_s} s, addresses are cached {DNS_TTL_S} s"
                )
            ready_s = int(each.spec.get("minReadySeconds", 0))
            if ready_s < DNS_TTL_S + DNS_MARGIN_S or ready_s <= announced_s:
                found.append(f"{each.name}: the next pod is stopped {ready_s} s after one is ready")
    return found


def members_of_etcd_change_after_old_addresses_are_forgotten(objects: Objects) -> list[str]:
    """A roll stops a member only when the one before it can be found again, so that a majority is reachable."""
    return [
        f"{each.name}: the next member is stopped {ready_s} s after one is ready"
        for each in workloads(objects)
        if each.kind == "StatefulSet"
        and each.name == "etcd"
        and (ready_s := int(each.spec.get("minReadySeconds", 0))) < DNS_TTL_S + DNS_MARGIN_S
    ]


def _pre_stop_s(workload: Workload) -> int:
    hook = workload.pod["containers"][0].get("lifecycle", {}).get("preStop", {})
    return int(hook.get("sleep", {}).get("seconds", 0))
