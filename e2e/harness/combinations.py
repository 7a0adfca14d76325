"""Likely combinations of overlays and components, and the values with which the Helm chart makes the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.harness.manifests import Manifest, overlays, patched, rendered

ENDPOINTS: Final = (
    "configMapGenerator: [{name: kafscale-settings, behavior: merge, literals: ['KAFSCALE_ETCD_ENDPOINTS="
    "https://etcd-0.example.com:2379,https://etcd-1.example.com:2379,https://etcd-2.example.com:2379']}]\n"
)
OUTSIDE: Final = "configMapGenerator: [{name: kafscale-outside, literals: ['domain=kafka.example.com']}]\n"
ADDRESS: Final = (
    "configMapGenerator: [{name: kafscale-outside, literals: ['address=kafka.example.com:9094']}]\n"
)
COMBINATIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    "an address for each front door": ("../base", ("external-stores", "per-pod-addresses"), OUTSIDE),
    "the same by metrics": (
        *("../base", ("external-stores", "per-pod-addresses", "prometheus", "keda"), OUTSIDE),
    ),
    "without the rights of a whole cluster": ("../base", ("external-stores", "images"), ENDPOINTS),
    "an address of the private network": ("production", ("one-address",), ADDRESS),
    "alerts by the Prometheus operator": ("production", ("prometheus",), ""),
    "the role of the node": ("production", ("instance-metadata",), ""),
    "quotas of the whole cluster": ("production", ("cluster-quotas", "limits", "redis"), ""),
    "an address for each front door, and bounds": ("production", ("per-pod-addresses", "limits"), OUTSIDE),
    "a client certificate for etcd": ("production", ("etcd-certificate",), ""),
    "jobs beside upkeep": ("production", ("spark-cronjobs", "etcd-certificate"), ""),
    "development with all there is": ("dev", ("prometheus", "keda", "redis", "traces"), ""),
    "traces of production": ("production", ("traces",), ""),
    "encryption without logins": ("production", ("one-address", "tls"), ADDRESS),
    "production with a shared cache": ("production", ("redis",), ""),
    "certificates between the services": ("production", ("internal-tls",), ""),
    "encryption for clients outside": ("../base", ("external-stores", "per-pod-addresses", "tls"), OUTSIDE),
    "logins and ACLs": ("production", ("one-address", "internal-tls", "tls", "authorization"), ADDRESS),
    "an address on the internet": (
        *("production", ("per-pod-addresses", "internal-tls", "tls", "authorization", "public-address")),
        OUTSIDE,
    ),
    "its own etcd and Redis, and bounds": ("production-etcd", ("redis", "limits"), ""),
    "its own etcd, by metrics": ("production-etcd", ("prometheus", "keda", "internal-tls"), ""),
    "production with snapshots of etcd": ("production", ("backup", "images"), ""),
    "production with signed entries in it": ("production", ("redis", "redis-keys"), ""),
}
"""By name: an overlay, or the base, with these components and lines of a kustomization."""

STORES: Final = {
    "endpoints": "https://etcd-0.example.com:2379,https://etcd-1.example.com:2379,https://etcd-2.example.com:2379"
}
PRODUCTION: Final[Mapping[str, Any]] = {"etcd": STORES}
SECURE: Final = {"internalTls": True, "tls": True, "authorization": True}
ONE: Final = {"kind": "one-address", "address": "kafka.example.com:9094"}
EACH: Final = {"kind": "per-pod-addresses", "domain": "kafka.example.com"}
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    "production": PRODUCTION,
    "production-keda": {**PRODUCTION, "prometheus": {"enabled": True}, "keda": {"enabled": True}},
    "production-etcd": {"etcd": {"inside": True}},
    "an address of the private network": {**PRODUCTION, "outside": ONE},
    "alerts by the Prometheus operator": {**PRODUCTION, "prometheus": {"enabled": True}},
    "the role of the node": {**PRODUCTION, "network": {"instanceMetadata": True}},
    "quotas of the whole cluster": {
        **PRODUCTION,
        "clusterQuotas": True,
        "limits": True,
        "redis": {"enabled": True},
    },
    "an address for each front door, and bounds": {**PRODUCTION, "outside": EACH, "limits": True},
    "a client certificate for etcd": {"etcd": {**STORES, "certificate": True}},
    "traces of production": {**PRODUCTION, "traces": {"enabled": True}},
    "certificates between the services": {**PRODUCTION, "internalTls": True},
    "logins and ACLs": {**PRODUCTION, "outside": ONE, **SECURE},
    "encryption without logins": {**PRODUCTION, "outside": ONE, "tls": True},
    "an address on the internet": {**PRODUCTION, "outside": {**EACH, "public": True}, **SECURE},
    "production with snapshots of etcd": {**PRODUCTION, "backup": {"enabled": True}},
    "production with signed entries in it": {**PRODUCTION, "redis": {"enabled": True, "keys": True}},
    "its own etcd and Redis, and bounds": {
        "etcd": {"inside": True},
        "redis": {"enabled": True},
        "limits": True,
    },
    "its own etcd, by metrics": {
        "etcd": {"inside": True},
        "prometheus": {"enabled": True},
        "keda": {"enabled": True},
        "internalTls": True,
    },
    "without the rights of a whole cluster": {
        "etcd": {**STORES, "ca": False},
        "priority": False,
    },
}
"""The values with which the chart makes the same objects."""


def service_overlays() -> list[str]:
    return [each for each in overlays() if not each.startswith("spark-")]


def combination(name: str, folder: Path) -> list[Manifest]:
    """The objects of an overlay, or of a combination, whose kustomization goes into the folder."""
    if name not in COMBINATIONS:
        return rendered(name)
    overlay, components, more = COMBINATIONS[name]
    return patched(overlay, more, folder, components)
