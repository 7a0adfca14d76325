"""Writes k8s/components/prometheus/rules.yaml, the alerts of observe/prometheus/alerts.yml as the Prometheus operator
reads them; with --check says whether it is current. kustomize reads no file outside its folder."""

import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ALERTS: Final = ROOT / "observe" / "prometheus" / "alerts.yml"
RULES: Final = ROOT / "k8s" / "components" / "prometheus" / "rules.yaml"
HEAD: Final = """\
# Made of observe/prometheus/alerts.yml by tools/gen_k8s_rules.py.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kafscale
  labels:
    app.kubernetes.io/name: kafscale
spec:
"""


def made(alerts: str) -> str:
    """The manifest; the file begins with a comment and has `groups` at its top."""
    return HEAD + "".join(f"  {line}".rstrip() + "\n" for line in alerts.splitlines())


def main() -> int:
    text = made(ALERTS.read_text())
    if "--check" not in sys.argv[1:]:
        RULES.write_text(text)
        return 0
    if RULES.exists() and RULES.read_text() == text:
        return 0
    print(f"{RULES.relative_to(ROOT)} is not what `make gen` writes")
    return 1


if __name__ == "__main__":
    sys.exit(main())
