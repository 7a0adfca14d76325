"""`make release`: what one version consists of, in out/release/VERSION. It publishes nothing.

    *.whl             a wheel of every member; `kafscale-cli` requires the others in the same version
    constraints.txt   the versions of other packages that the wheels are tested with
    notes.md          the version's section of the changelog
    images.txt        image and id, one per line; the images are in the engine that built them
    *.cdx.json        what is in each image, and in an environment with the command, as CycloneDX
    SHA256SUMS        of all these files

It needs a clean checkout, a section of the changelog for the version, a Docker engine, and syft. Without an engine,
--no-images makes the rest. docs/release.md has the steps before and after it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tools.gen_version import files, version
from tools.generated import ROOT

CHANGELOG: Final = ROOT / "CHANGELOG.md"
RELEASES: Final = ROOT / "out" / "release"
SERVICES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep", "console")
UV: Final = str(Path(sys.executable).with_name("uv"))
NOT_RELEASED: Final = "kafscale_testkit-"
_PIN: Final = re.compile(r"^([a-zA-Z0-9._-]+==[^ \\]+(?: ; [^\\]*)?)", re.MULTILINE)


class NotReady(Exception):
    """What must be done before there can be a release."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds a release; publishes nothing.")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--wheels-only", action="store_true", help="only wheels; the checkout may be dirty")
    parts.add_argument("--no-images", action="store_true", help="what needs no Docker engine")
    parser.add_argument("--base", help="the image that the images begin with")
    parser.add_argument(
        "--build-flags", default="", help="more options of docker build, as a shell reads them"
    )
    parser.add_argument("--out", type=Path, default=RELEASES)
    options = parser.parse_args()
    of = version()
    folder: Path = options.out / of
    try:
        check_versions(of)
        if not options.wheels_only:
            check_ready(of, ("syft",) if options.no_images else ("docker", "syft"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build_wheels(folder)
        if not options.wheels_only:
            (folder / "notes.md").write_text(notes(of, CHANGELOG.read_text()))
            write_bill_of_command(folder, of)
        if not (options.wheels_only or options.no_images):
            base = [] if options.base is None else [f"--build-arg=BASE={options.base}"]
            build_images(folder, of, [*base, *shlex.split(options.build_flags)])
        write_sums(folder)
    except NotReady as what:
        print(f"release: {what}", file=sys.stderr)
        return 1
    print(f"release {of} is in {folder}")
    return 0


def check_versions(of: str) -> None:
    """Raises NotReady."""
    for path, text in files(of).items():
        if path.read_text() != text:
            raise NotReady(f"{path.relative_to(ROOT)} has another version: run `make gen`")


def check_ready(of: str, programs: Sequence[str]) -> None:
    """Raises NotReady."""
    if said(["git", "status", "--porcelain"]):
        raise NotReady("the checkout has changes that are not committed")
    if not notes(of, CHANGELOG.read_text()):
        raise NotReady(f"CHANGELOG.md has no section `## {of} (DATE)`, or nothing is in it")
    for program in programs:
        if shutil.which(program) is None:
            raise NotReady(f"{program} is not installed")


def notes(of: str, changelog: str) -> str:
    """The version's section without its title; empty if there is none."""
    title = rf"^## {re.escape(of)} \(\d{{4}}-\d\d-\d\d\)$"
    found = re.search(rf"{title}(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return f"{found[1].strip()}\n" if found and found[1].strip() else ""


def build_wheels(folder: Path) -> None:
    """Equal sources give equal wheels: the times in them are that of the commit."""
    made_s = said(["git", "log", "-1", "--format=%ct"])
    for target in (["--all-packages", str(ROOT)], [str(ROOT / "spark" / "engine")]):
        run([UV, "build", "--quiet", "--wheel", "--out-dir", str(folder), *target], SOURCE_DATE_EPOCH=made_s)
    for wheel in folder.glob(f"{NOT_RELEASED}*"):
        wheel.unlink()
    (folder / ".gitignore").unlink(missing_ok=True)
    pins = _PIN.findall((ROOT / "requirements.lock").read_text())
    (folder / "constraints.txt").write_text("".join(f"{pin.strip()}\n" for pin in pins))


def write_bill_of_command(folder: Path, of: str) -> None:
    """Of an environment into which the wheels were installed as docs/release.md says."""
    with tempfile.TemporaryDirectory() as made:
        run([UV, "venv", "--quiet", f"--python={sys.executable}", made])
        given = [
            f"--find-links={folder}",
            f"--constraint={folder / 'constraints.txt'}",
            f"kafscale-cli=={of}",
        ]
        run([UV, "pip", "install", "--quiet", f"--python={made}", *given])
        write_bill(
            f"dir:{made}",
            folder / "kafscale-cli.cdx.json",
            "--source-name=kafscale-cli",
            f"--source-version={of}",
        )


def build_images(folder: Path, of: str, flags: Sequence[str]) -> None:
    ids = []
    labels = {"version": of, "revision": said(["git", "rev-parse", "HEAD"])}
    marks = [f"--label=org.opencontainers.image.{key}={value}" for key, value in labels.items()]
    for name, arguments in images():
        image = f"{name}:{of}"
        print(f"building {image}", flush=True)
        run(["docker", "build", "--quiet", *marks, *flags, *arguments, "--tag", image, str(ROOT)])
        ids.append(f"{image} {said(['docker', 'image', 'inspect', '--format', '{{.Id}}', image])}\n")
        write_bill(f"docker:{image}", folder / f"{name}.cdx.json")
    (folder / "images.txt").write_text("".join(ids))


def write_bill(source: str, file: Path, *options: str) -> None:
    """Of what syft finds in the source, as CycloneDX."""
    run(["syft", "scan", "--quiet", source, *options, f"--output=cyclonedx-json={file}"])


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
