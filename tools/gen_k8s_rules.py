"""Writes k8s/components/prometheus/rules.yaml: the alerts of observe/prometheus/alerts.yml in the format of the
Prometheus operator. kustomize reads no file outside its folder."""

import sys
from typing import Final

from tools.generated import ROOT, write_or_check

ALERTS: Final = ROOT / "observe" / "prometheus" / "alerts.yml"
RULES: Final = ROOT / "k8s" / "components" / "prometheus" / "rules.yaml"
HEAD: Final = """\
# Generated from observe/prometheus/alerts.yml by tools/gen_k8s_rules.py.
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
    return write_or_check({RULES: made(ALERTS.read_text())})


if __name__ == "__main__":
    sys.exit(main())
