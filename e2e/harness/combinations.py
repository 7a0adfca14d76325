"""Combinations of overlays and components, and values of the Helm chart, for which the laws of the manifests hold.

Each component and each switch of the chart is in one of them, not each pair of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from e2e.harness.manifests import Manifest, overlays, patched, rendered

OUTSIDE: Final = "configMapGenerator: [{name: kafscale-outside, literals: ['domain=kafka.example.com']}]\n"
ADDRESS: Final = (
    "configMapGenerator: [{name: kafscale-outside, literals: ['address=kafka.example.com:9094']}]\n"
)
LOGINS: Final = ("internal-tls", "tls", "authorization")
COMBINATIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    "an address on the internet": (
        *("production", ("per-pod-addresses", *LOGINS, "public-address", "instance-metadata")),
        OUTSIDE,
    ),
    "an address of the private network": (
        *("production", ("one-address", *LOGINS, "redis", "redis-keys", "traces", "images")),
        ADDRESS,
    ),
    "addresses by metrics, and no certificate": (
        *("../base", ("external-stores", "per-pod-addresses", "prometheus", "keda"), OUTSIDE),
    ),
    "quotas of the whole cluster": ("production", ("cluster-quotas", "limits", "redis"), ""),
    "its own etcd, by metrics": ("production-etcd", ("prometheus", "keda", "internal-tls", "limits"), ""),
    "jobs beside upkeep": ("production", ("spark-cronjobs", "etcd-certificate", "backup"), ""),
    "a console": ("production", ("console", "images"), ""),
    "development with all there is": ("dev", ("prometheus", "keda", "redis", "traces"), ""),
}
"""By name: an overlay, or the base, with these components and lines of a kustomization."""

STORES: Final = {
    "endpoints": "https://etcd-0.example.com:2379,https://etcd-1.example.com:2379,https://etcd-2.example.com:2379"
}
PRODUCTION: Final[Mapping[str, Any]] = {"etcd": STORES}
SECURE: Final = {"internalTls": True, "tls": True, "authorization": True}
ONE: Final = {"kind": "one-address", "address": "kafka.example.com:9094"}
EACH: Final = {"kind": "per-pod-addresses", "domain": "kafka.example.com"}
OVERLAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "production": PRODUCTION,
    "production-keda": {**PRODUCTION, "prometheus": {"enabled": True}, "keda": {"enabled": True}},
    "production-etcd": {"etcd": {"inside": True}},
}
"""The values with which the chart makes the objects of an overlay."""
SWITCHED_ON: Final[Mapping[str, Any]] = {
    "etcd": {"inside": True, "certificate": True},
    **SECURE,
    "outside": {**EACH, "public": True},
    "prometheus": {"enabled": True},
    "keda": {"enabled": True},
    "redis": {"enabled": True, "keys": True},
    "traces": {"enabled": True},
    "backup": {"enabled": True},
    "console": {"enabled": True},
    "network": {"instanceMetadata": True},
    "clusterQuotas": True,
    "limits": True,
}
"""Every option of the chart, each at once with all others."""
WITH_CONSOLE: Final[Mapping[str, Any]] = {**PRODUCTION, "console": {"enabled": True}}
"""The values with which the chart makes the objects of the combination "a console"."""
VALUES: Final[Mapping[str, Mapping[str, Any]]] = {
    **OVERLAYS,
    "a console": WITH_CONSOLE,
    "one address": {**PRODUCTION, "outside": ONE, **SECURE},
    "few rights": {"etcd": {**STORES, "ca": False}, "priority": False},
    "switched on": SWITCHED_ON,
}
"""Values for which the laws hold."""


def service_overlays() -> list[str]:
    return [each for each in overlays() if not each.startswith("spark-")]


def combination(name: str, folder: Path) -> list[Manifest]:
    """The objects of an overlay, or of a combination, whose kustomization goes into the folder."""
    if name not in COMBINATIONS:
        return rendered(name)
    overlay, components, more = COMBINATIONS[name]
    return patched(overlay, more, folder, components)
