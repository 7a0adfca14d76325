"""`make release`: what one version consists of, in out/release/VERSION. It publishes nothing.

    *.whl             a wheel of every member; `kafscale-cli` requires the others in the same version
    constraints.txt   the versions of other packages that the wheels are tested with
    images.txt        image and id, one per line; the images are in the engine that built them
    *.cdx.json        what is in each image, as CycloneDX
    SHA256SUMS        of all these files

It needs a clean checkout, a section of the changelog for the version, a Docker engine, and syft. docs/release.md has
the steps before and after it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.gen_version import files, version
from tools.generated import ROOT

CHANGELOG: Final = ROOT / "CHANGELOG.md"
RELEASES: Final = ROOT / "out" / "release"
SERVICES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep")
NOT_RELEASED: Final = "kafscale_testkit-"
_PIN: Final = re.compile(r"^([a-zA-Z0-9._-]+==[^ \\]+(?: ; [^\\]*)?)", re.MULTILINE)


class NotReady(Exception):
    """What must be done before there can be a release."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds a release; publishes nothing.")
    parser.add_argument("--wheels-only", action="store_true", help="no images, and the checkout may be dirty")
    parser.add_argument("--base", help="the image that the images begin with")
    parser.add_argument("--out", type=Path, default=RELEASES)
    options = parser.parse_args()
    of = version()
    folder: Path = options.out / of
    try:
        check(of, clean=not options.wheels_only)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build_wheels(folder)
        if not options.wheels_only:
            build_images(folder, of, options.base)
        write_sums(folder)
    except NotReady as what:
        print(f"release: {what}", file=sys.stderr)
        return 1
    print(f"release {of} is in {folder}")
    return 0


def check(of: str, *, clean: bool) -> None:
    """Raises NotReady."""
    for path, text in files(of).items():
        if path.read_text() != text:
            raise NotReady(f"{path.relative_to(ROOT)} has another version: run `make gen`")
    if not clean:
        return
    if said(["git", "status", "--porcelain"]):
        raise NotReady("the checkout has changes that are not committed")
    if of not in changelog_versions():
        raise NotReady(f"CHANGELOG.md has no section `## {of} (DATE)`")
    for program in ("docker", "syft"):
        if shutil.which(program) is None:
            raise NotReady(f"{program} is not installed")


def changelog_versions() -> list[str]:
    """The newest first."""
    return re.findall(r"^## (\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)$", CHANGELOG.read_text(), re.MULTILINE)


def build_wheels(folder: Path) -> None:
    """Equal sources give equal wheels: the times in them are that of the commit."""
    made_s = said(["git", "log", "-1", "--format=%ct"])
    uv = [str(Path(sys.executable).with_name("uv")), "build", "--quiet", "--wheel", "--out-dir", str(folder)]
    for target in (["--all-packages", str(ROOT)], [str(ROOT / "spark" / "engine")]):
        run([*uv, *target], SOURCE_DATE_EPOCH=made_s)
    for wheel in folder.glob(f"{NOT_RELEASED}*"):
        wheel.unlink()
    (folder / ".gitignore").unlink(missing_ok=True)
    pins = _PIN.findall((ROOT / "requirements.lock").read_text())
    (folder / "constraints.txt").write_text("".join(f"{pin.strip()}\n" for pin in pins))


def build_images(folder: Path, of: str, base: str | None) -> None:
    ids = []
    for name, arguments in images():
        image = f"{name}:{of}"
        print(f"building {image}", flush=True)
        revision = said(["git", "rev-parse", "HEAD"])
        labels = {"version": of, "revision": revision}
        marks = [f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()]
        given = [] if base is None else [f"--build-arg=BASE={base}"]
        run(["docker", "build", "--quiet", *marks, *given, *arguments, "--tag", image, str(ROOT)])
        ids.append(f"{image} {said(['docker', 'image', 'inspect', '--format', '{{.Id}}', image])}\n")
        run(
            [
                "syft",
                "scan",
                "--quiet",
                f"docker:{image}",
                f"--output=cyclonedx-json={folder / name}.cdx.json",
            ]
        )
    (folder / "images.txt").write_text("".join(ids))


def images() -> Iterator[tuple[str, list[str]]]:
    """Each image, and the arguments of its build."""
    for service in SERVICES:
        yield f"kafscale-{service}", [f"--build-arg=SERVICE={service}"]
    yield "kafscale-spark", ["--file", str(ROOT / "spark" / "Dockerfile")]


def write_sums(folder: Path) -> None:
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))


def run(command: Sequence[str], **env: str) -> None:
    subprocess.run(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.DEVNULL, check=True)


def said(command: Sequence[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
