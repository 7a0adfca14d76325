"""The chart in a real Kubernetes, on the etcd and the object store of `dev`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

import pytest

from e2e.checkers.manifests.objects import SERVICES
from e2e.harness.clients import NEW_CLIENT
from e2e.harness.kubernetes.deployed import Deployed
from e2e.harness.manifests import CHART, helm

NAMESPACE: Final = "kafscale-helm"
HELM_TIMEOUT_S: Final = 600
RECORDS: Final = 200
FEW: Final = {"resources": {"requests": {"cpu": "25m", "memory": "128Mi"}}}
SCALED: Final = {"pods": {"min": 1, "max": 2}, **FEW}
VALUES: Final[Mapping[str, Any]] = {
    "image": {"registry": "docker.io/library", "tag": "latest"},
    "etcd": {"endpoints": "http://etcd-0.etcd.kafscale:2379,http://etcd-1.etcd.kafscale:2379", "ca": False},
    "settings": {
        "KAFSCALE_NAMESPACE": "helm",
        "KAFSCALE_S3_ENDPOINT": "http://object-store.kafscale:8333",
        "KAFSCALE_S3_BUCKET": "kafscale",
        "KAFSCALE_ETCD_QUOTA_BYTES": "8589934592",
    },
    "network": {"objectStore": {"port": 8333}},
    "services": {service: FEW if service == "upkeep" else SCALED for service in SERVICES},
}

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1_800)]


def run_helm(dev: Deployed, *words: str, values: Mapping[str, Any] | None = None) -> None:
    more = ["--values", "-", "--wait", "--timeout", "5m"] if values is not None else []
    done = subprocess.run(
        [helm(), "--kubeconfig", dev.node.kubectl.config, "--namespace", NAMESPACE, *words, *more],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        timeout=HELM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def pods(release: Deployed) -> dict[str, str]:
    """The ids of all pods, by service."""
    return {
        f"{service} {at}": pod["metadata"]["uid"]
        for service in SERVICES
        for at, pod in enumerate(release.pods(service))
    }


def test_a_release_is_installed_upgraded_changed_and_uninstalled(dev: Deployed) -> None:
    release = Deployed(dev.node, NAMESPACE)
    dev.node.kubectl("create", "namespace", NAMESPACE)
    dev.node.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    release.kubectl(
        *("create", "secret", "generic", "kafscale-credentials"),
        "--from-literal=KAFSCALE_S3_ACCESS_KEY_ID=kafscale",
        "--from-literal=KAFSCALE_S3_SECRET_ACCESS_KEY=for-development-only",
    )
    run_helm(dev, "install", "kafscale", str(CHART), values=VALUES)
    NEW_CLIENT.produce(release.bootstrap, "kept", "none", RECORDS)
    installed = pods(release)

    run_helm(dev, "upgrade", "kafscale", str(CHART), values=VALUES)
    assert pods(release) == installed

    changed = {**VALUES, "settings": {**VALUES["settings"], "KAFSCALE_LOG_LEVEL": "debug"}}
    run_helm(dev, "upgrade", "kafscale", str(CHART), values=changed)
    release.wait_ready()
    assert not set(pods(release).values()) & set(installed.values())
    assert len(NEW_CLIENT.consume(release.bootstrap, "kept", RECORDS)) == RECORDS

    run_helm(dev, "uninstall", "kafscale", "--wait", "--timeout", "5m")
    kinds = "all,configmap,serviceaccount,networkpolicy,poddisruptionbudget,horizontalpodautoscaler"
    assert (
        release.kubectl("get", kinds, "--selector", "app.kubernetes.io/part-of=kafscale", "--output", "name")
        == ""
    )
    dev.node.kubectl("delete", "namespace", NAMESPACE, "--wait")
