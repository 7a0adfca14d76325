"""Remakes every page of docs/ that is made from code, the dashboards and the alerts for Kubernetes;
with --check says which are not current."""

import subprocess
import sys
from pathlib import Path
from typing import Final

TOOLS: Final = Path(__file__).resolve().parent
PAGES: Final = (
    "gen_api_docs.py",
    "gen_command_docs.py",
    "gen_settings_docs.py",
    "gen_metrics_docs.py",
    "gen_topic_config_docs.py",
    "gen_dashboards.py",
    "gen_k8s_rules.py",
)


def main() -> int:
    codes = [subprocess.run([sys.executable, str(TOOLS / page), *sys.argv[1:]]).returncode for page in PAGES]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
