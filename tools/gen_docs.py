"""Generates the pages of docs/ that are made from code, the dashboards, manifests and the versions."""

import sys
from collections.abc import Callable, Sequence
from typing import Final

from tools import (
    gen_api_docs,
    gen_attack_docs,
    gen_chart_files,
    gen_dashboards,
    gen_k8s_addresses,
    gen_k8s_rules,
    gen_metrics_docs,
    gen_settings_docs,
    gen_store_rights,
    gen_topic_config_docs,
    gen_version,
)

GENERATORS: Final[Sequence[Callable[[], int]]] = (
    gen_api_docs.main,
    gen_settings_docs.main,
    gen_metrics_docs.main,
    gen_topic_config_docs.main,
    gen_store_rights.main,
    gen_attack_docs.main,
    gen_dashboards.main,
    gen_k8s_addresses.main,
    gen_k8s_rules.main,
    gen_chart_files.main,
    gen_version.main,
)


def main() -> int:
    """Runs all generators, so that --check names every file that is not current."""
    return max([generate() for generate in GENERATORS])


if __name__ == "__main__":
    sys.exit(main())
