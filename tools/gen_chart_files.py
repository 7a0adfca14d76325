"""Copies files of kustomize's components to k8s/chart/files: the Helm chart reads no file outside its folder."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tools.generated import ROOT, write_or_check

COMPONENTS: Final = ROOT / "k8s" / "components"
FILES: Final = ROOT / "k8s" / "chart" / "files"
COPIED: Final[Mapping[str, Sequence[str]]] = {
    "backup": ("cronjob", "service-account"),
    "cluster-quotas": ("network",),
    "console": ("console", "network"),
    "etcd": ("etcd", "network"),
    "etcd-tls": ("certificates", "etcd"),
    "instance-metadata": ("network",),
    "internal-tls": ("authority", "certificates"),
    "limits": ("quota",),
    "outside-listener": ("network",),
    "priority": ("priority",),
    "prometheus": ("pods", "rules"),
    "redis": ("network", "redis"),
    "traces": ("network",),
}
HEAD: Final = "# Copied by tools/gen_chart_files.py from k8s/components/{component}/{name}.yaml.\n"


def main() -> int:
    made = {
        FILES / component / f"{name}.yaml": HEAD.format(component=component, name=name)
        + (COMPONENTS / component / f"{name}.yaml").read_text()
        for component, names in COPIED.items()
        for name in names
    }
    return write_or_check(made, FILES.rglob("*.yaml"))


if __name__ == "__main__":
    sys.exit(main())
