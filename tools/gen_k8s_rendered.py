"""Writes k8s/rendered: what each overlay and the chart make, so that a review sees what a change does to the objects.

python -m tools.gen_k8s_rendered           writes the files; `make gen` runs it, `make e2e` compares them

It needs kustomize (or kubectl, or Go to build it) and Helm (or pip to unpack it), so `make check` does not compare.
A file lists the objects that are equal to those of `production` by their names only.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from e2e.harness.combinations import SWITCHED_ON
from e2e.harness.manifests import Manifest, charted, overlays, rendered
from tools.generated import ROOT, write_or_check

RENDERED: Final = ROOT / "k8s" / "rendered"
CHART: Final = "chart-switched-on"
FIRST: Final = "production"
KUSTOMIZE: Final = ("kustomize", "kubectl", "go")
HEAD: Final = "# Rendered by tools/gen_k8s_rendered.py.\n"


def files() -> dict[Path, str]:
    """The text of each file, by path."""
    made: dict[str, Sequence[Manifest]] = {name: rendered(name) for name in overlays()}
    made[CHART] = charted(SWITCHED_ON)
    first = {named(each): each for each in made[FIRST]}
    return {
        RENDERED / f"{name}.yaml": text(objects, {} if name == FIRST else first)
        for name, objects in made.items()
    }


def text(objects: Sequence[Manifest], first: Mapping[str, Manifest]) -> str:
    """The objects by kind and name. What `first` has in the same form is a line of a comment."""
    ordered = sorted(objects, key=named)
    equal = [named(each) for each in ordered if first.get(named(each)) == each]
    other = [each for each in ordered if named(each) not in equal]
    lines = "".join(f"# {name}: as in {FIRST}.yaml\n" for name in equal)
    return HEAD + lines + yaml.dump_all(other, Dumper=yaml.CSafeDumper, width=120, default_flow_style=None)


def named(each: Manifest) -> str:
    return f"{each['kind']} {each['metadata']['name']}"


def lacking() -> str:
    """What is not installed, if anything."""
    if not any(map(shutil.which, KUSTOMIZE)):
        return f"one of {', '.join(KUSTOMIZE)}"
    return "" if shutil.which("helm") or platform.machine() == "x86_64" else "helm"


def main() -> int:
    if missing := lacking():
        print(f"k8s/rendered stays as it is: install {missing} to render it", file=sys.stderr)
        return 0
    return write_or_check(files(), RENDERED.glob("*.yaml"))


if __name__ == "__main__":
    sys.exit(main())
