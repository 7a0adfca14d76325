"""What a Kubernetes of one node is made of, each part built once: its programs from the Go module proxy, and images.

`python -m e2e.harness.kubernetes.parts` builds what is missing or has changed. `… save FOLDER` saves the images of the
Docker engine that runs; `e2e/containers/run.sh` has built those of the services.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kafscale.runtime.etcd_program import find_etcd

from e2e.checkers.manifests.objects import workloads
from e2e.harness.builds import BUILT, built_once
from e2e.harness.manifests import helm, kubectl, rendered

ROOT: Final = Path(__file__).parent.parent.parent.parent
SOURCES: Final = ROOT / "e2e" / "kubernetes" / "programs"
VERSION: Final = "v1.34.4"
"""As in go.mod."""
PACKAGES: Final = (
    *(
        f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
    ),
    "sigs.k8s.io/metrics-server/cmd/metrics-server",
    "./dns",
)
OF_IMAGES: Final[Sequence[Path | str]] = (
    *sorted(ROOT.glob("libs/*/src")),
    *sorted(ROOT.glob("services/*/src")),
    *(ROOT / "spark" / name / "src" for name in ("lake", "upkeep")),
    *(
        ROOT / name
        for name in ("Dockerfile", "requirements.lock", "compose.yaml", "tools/locked.py", "tools/trim.sh")
    ),
    ROOT / "e2e" / "containers",
    SOURCES,
    Path(__file__),
)
STAND_INS: Final[Mapping[str, str]] = {
    "etcd": "KAFSCALE_ETCD_IMAGE",
    "seaweedfs": "KAFSCALE_SEAWEEDFS_IMAGE",
}
"""By the last word of an image's name: the variable that names what replaces it, where images cannot be pulled."""


def programs() -> Path:
    """The folder of the programs."""
    return built_once("kubernetes-programs", _build, of=[SOURCES, VERSION, *PACKAGES])


def etcd() -> Path:
    """The program of Kubernetes' own etcd."""
    return find_etcd(BUILT / "kubernetes-etcd", print)


def images() -> Path:
    """An archive of all images that the manifests name, and of the node's own."""
    return built_once("kubernetes-images", _build_images, of=OF_IMAGES) / "images.tar"


def _build(folder: Path) -> None:
    version = "k8s.io/component-base/version"
    _, minor, _ = VERSION.split(".")
    flags = f"-s -w -X {version}.gitVersion={VERSION} -X {version}.gitMajor=1 -X {version}.gitMinor={minor}"
    sys.stderr.write("kubernetes: building its programs, once (ten minutes of CPU)\n")
    subprocess.run(
        ["go", "build", "-ldflags", flags, "-o", f"{folder}/", *PACKAGES],
        cwd=SOURCES,
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )


def _build_images(folder: Path) -> None:
    programs()
    run = ROOT / "e2e" / "containers" / "run.sh"
    subprocess.run([run, sys.executable, "-m", __spec__.name, "save", folder], cwd=ROOT, check=True)


def _save(folder: Path) -> None:
    names = sorted(
        {container["image"] for each in workloads(rendered("dev")) for container in each.containers}
    )
    for name in names:
        last = name.rpartition("/")[2].partition(":")[0]
        if last in STAND_INS:
            replaced = os.environ.get(STAND_INS[last])
            _docker(*(("tag", replaced) if replaced else ("pull", "--quiet")), name)
    own = {
        "localhost/pause:1": f'FROM {os.environ["KAFSCALE_BASE_IMAGE"]}\nCMD ["/bin/sleep", "infinity"]\n',
        "localhost/dns:1": 'FROM scratch\nCOPY dns /\nENTRYPOINT ["/dns"]\n',
        "localhost/metrics-server:1": 'FROM scratch\nCOPY metrics-server /\nENTRYPOINT ["/metrics-server"]\n',
    }
    for name, lines in own.items():
        (folder / "Dockerfile").write_text(lines)
        _docker("build", "--quiet", "--tag", name, "--file", str(folder / "Dockerfile"), str(programs()))
    _docker("save", "--output", str(folder / "images.tar"), *names, *own)


def _docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    match sys.argv[1:]:
        case ["save", folder]:
            _save(Path(folder))
        case []:
            kubectl()
            helm()
            programs()
            etcd()
            images()
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
