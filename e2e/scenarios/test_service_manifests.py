"""The Kubernetes manifests of the services: an API server accepts them, and they keep the laws for operators.

Every overlay, and combinations in which each component is once, are checked with their kinds' schemas and with the laws
of `e2e/checkers/manifests`. `test_rendered.py` compares the overlays with the files of `k8s/rendered`. No cluster is
needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.grpc_identity import dns_name
from kafscale.runtime.metric_table import rows_of

from e2e.checkers.manifests.environment import settings_of
from e2e.checkers.manifests.laws import broken
from e2e.checkers.manifests.objects import POD_NAME, Objects, console, of_kind, ours, quantity, workloads
from e2e.harness.combinations import COMBINATIONS, combination, service_overlays
from e2e.harness.manifests import RELEASES, ROOT, Manifest, built, check, patched, rendered
from tools.gen_k8s_addresses import services

DOCUMENTATION: Final = ROOT.parent / "docs" / "kubernetes.md"
STORES: Final = DOCUMENTATION.with_name("security-stores.md")
GIB: Final = 1 << 30
SERVICES: Final = ["admin", "coordinator", "fetch", "frontdoor", "produce", "upkeep"]


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Manifest]]:
    return {
        name: combination(name, tmp_path_factory.mktemp("overlay"))
        for name in (*service_overlays(), *COMBINATIONS)
    }


each_one = pytest.mark.parametrize("name", [*service_overlays(), *COMBINATIONS])


@each_one
def test_the_laws_hold(combined: Mapping[str, list[Manifest]], name: str) -> None:
    assert broken(combined[name]) == []


@pytest.mark.parametrize("name", COMBINATIONS)
def test_every_object_is_what_its_kinds_schema_says(
    combined: Mapping[str, list[Manifest]], name: str
) -> None:
    """In the newest release: test_job_manifests.py holds all overlays against all of them."""
    for manifest in combined[name]:
        check(manifest, RELEASES[-1])


@each_one
def test_all_six_services_are_there_and_nothing_twice(
    combined: Mapping[str, list[Manifest]], name: str
) -> None:
    assert sorted(str(each.service) for each in ours(combined[name])) == SERVICES
    ids = [(each["kind"], each["metadata"]["name"]) for each in combined[name]]
    assert len(ids) == len(set(ids))
    assert {each["metadata"].get("namespace") for each in namespaced(combined[name])} == {"kafscale"}


def test_with_keda_each_service_scales_by_metrics_that_it_exports() -> None:
    triggers = {
        each["spec"]["scaleTargetRef"]["name"]: [metric_of(trigger) for trigger in each["spec"]["triggers"]]
        for each in of_kind(rendered("production-keda"), "ScaledObject")
    }
    assert triggers == {
        "kafscale-frontdoor": ["kafscale_frontdoor_connections", "cpu"],
        "kafscale-produce": ["kafscale_produce_bytes_total", "cpu"],
        "kafscale-fetch": ["kafscale_fetch_bytes_total", "cpu"],
        "kafscale-coordinator": ["kafscale_coordinator_groups"],
    }
    exported = {row.exposed(service) for service in SERVICES for row in rows_of(service)}
    assert {name for names in triggers.values() for name in names} - {"cpu"} <= exported


def test_each_component_is_in_an_overlay_or_a_combination() -> None:
    """Also by way of another component."""
    pages = [path.read_text() for path in ROOT.glob("*/*/kustomization.yaml")]
    used = {name for _, components, _ in COMBINATIONS.values() for name in components}
    used |= {name for page in pages for name in re.findall(r"[./]*/([a-z0-9-]+)\b", page)}
    assert {path.name for path in (ROOT / "components").iterdir()} <= used


def test_production_has_no_secret_and_no_latest_image() -> None:
    for name in ("production", "production-etcd", "production-keda"):
        assert not list(of_kind(rendered(name), "Secret"))
        images = [each.containers[0]["image"] for each in ours(rendered(name))]
        assert images
        assert not [image for image in images if image.endswith(":latest")]


def test_each_service_has_the_certificate_of_its_own_role(combined: Mapping[str, list[Manifest]]) -> None:
    objects = combined["its own etcd, by metrics"]
    names = {
        each["spec"]["secretName"]: each["spec"].get("dnsNames") for each in of_kind(objects, "Certificate")
    }
    with_certificate = {}
    for each in ours(objects):
        mounted = {volume["name"]: volume for volume in each.pod["volumes"]}
        if "internal-tls" in mounted:
            with_certificate[each.service] = names[mounted["internal-tls"]["secret"]["secretName"]]
    assert with_certificate == {
        role: [dns_name(role)] for role in SERVICES if role != "upkeep"
    }  # which serves nobody


def test_the_overlay_of_the_documentation_is_sound(tmp_path: Path) -> None:
    objects = built(example("newName: registry.internal"), tmp_path)
    assert broken(objects) == []
    for manifest in objects:
        check(manifest, RELEASES[-1])
    [produce] = [each for each in ours(objects) if each.service == "produce"]
    assert produce.containers[0]["image"] == "registry.internal/kafscale-produce:1.2.3"
    assert produce.containers[0]["resources"]["limits"]["memory"] == "3Gi"


def test_upkeep_is_dropped_for_jobs_as_the_documentation_says(tmp_path: Path) -> None:
    objects = built(example("components/spark-cronjobs"), tmp_path)
    assert broken(objects) == []
    assert not [each for each in objects if each["metadata"]["name"] == "kafscale-upkeep"]
    assert len(list(of_kind(objects, "CronJob"))) == 4


def test_the_console_of_the_documentation_is_sound(tmp_path: Path) -> None:
    objects = built(example("components/console"), tmp_path)
    assert broken(objects) == []
    workload = console(objects)
    assert workload is not None
    assert not workload.containers[0]["image"].endswith(":latest")


def test_clients_outside_log_in_over_tls_as_the_documentation_says(tmp_path: Path) -> None:
    objects = built(example("components/authorization"), tmp_path)
    assert broken(objects) == []
    [door] = [each for each in ours(objects) if each.service == "frontdoor"]
    settings = settings_of(objects, door)
    assert isinstance(settings, FrontdoorSettings)
    assert {name: each.protocol.value for name, each in settings.securities().items()} == {
        "PLAINTEXT": "PLAINTEXT",
        "OUTSIDE": "SASL_SSL",
    }
    issued = yaml.safe_load(example("kind: Certificate"))
    check(issued, RELEASES[-1])
    [secret] = [each["secret"] for each in door.pod["volumes"] if each["name"] == "tls"]
    assert issued["spec"]["secretName"] == secret["secretName"]


def test_jobs_find_their_settings_beside_the_services(tmp_path: Path) -> None:
    objects = patched("dev", "", tmp_path, ("spark-cronjobs", "spark-operator"))
    made = {each["metadata"]["name"] for each in of_kind(objects, "ConfigMap", "Secret")}
    jobs = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in of_kind(objects, "CronJob")]
    templates = [each["spec"]["template"] for each in of_kind(objects, "ScheduledSparkApplication")]
    assert jobs
    assert templates
    read = [each["containers"][0] for each in jobs]
    read += [each[role] for each in templates for role in ("driver", "executor")]
    for settings, credentials in (each["envFrom"] for each in read):
        assert {settings["configMapRef"]["name"], credentials["secretRef"]["name"]} <= made


def test_a_service_has_its_own_user_in_etcd_as_the_documentation_says(tmp_path: Path) -> None:
    objects = patched("production", example("kafscale-etcd-fetch", STORES), tmp_path)
    [fetch] = [each for each in ours(objects) if each.service == "fetch"]
    [container] = fetch.containers
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["KAFSCALE_ETCD_USER"] == "kafscale-default-fetch"
    folder = env["KAFSCALE_ETCD_PASSWORD_FILE"].rpartition("/")[0]
    assert folder in [each["mountPath"] for each in container["volumeMounts"]]
    for manifest in objects:
        check(manifest, RELEASES[-1])


def test_twelve_front_doors_have_an_address_each_as_the_documentation_says(tmp_path: Path) -> None:
    (tmp_path / "more-addresses.yaml").write_text(services(first=6, pods=12))
    objects = built(example("more-addresses.yaml"), tmp_path)
    assert broken(objects) == []
    addressed = [each for each in of_kind(objects, "Service") if POD_NAME in each["spec"]["selector"]]
    assert len(addressed) == 12


def test_the_dns_of_a_node_is_added_as_the_documentation_says(tmp_path: Path) -> None:
    [policy] = [
        each
        for each in built(example("name: kafscale-names"), tmp_path)
        if each["metadata"]["name"] == "kafscale-names"
    ]
    check(policy, RELEASES[-1])
    pods, *blocks = policy["spec"]["egress"][0]["to"]
    assert "podSelector" in pods
    assert [each["ipBlock"]["cidr"] for each in blocks] == ["169.254.20.10/32", "10.96.0.10/32"]


def test_the_documentation_says_how_much_the_least_and_the_most_pods_take() -> None:
    objects = rendered("production")
    totals = dict.fromkeys(("requests cpu", "requests memory", "limits cpu", "limits memory"), 0.0)
    for each in ours(objects):
        [(fewest, most)] = [
            (one["spec"]["minReplicas"], one["spec"]["maxReplicas"])
            for one in of_kind(objects, "HorizontalPodAutoscaler")
            if one["spec"]["scaleTargetRef"]["name"] == each.name
        ] or [(1, 1)]  # upkeep
        for kind, pods in (("requests", fewest), ("limits", most)):
            for name in ("cpu", "memory"):
                totals[f"{kind} {name}"] += pods * quantity(each.containers[0]["resources"][kind][name])
    said = (
        f"ask for {totals['requests cpu']:.2f} cores and {totals['requests memory'] / GIB:.1f} GiB",
        f"the limits are {totals['limits cpu']:.0f} cores and {totals['limits memory'] / GIB:.0f} GiB",
    )
    page = DOCUMENTATION.read_text()
    for words in said:
        assert words in page, words


def test_the_documentation_says_how_large_a_node_development_needs() -> None:
    objects = rendered("dev")
    fewest = {
        each["spec"]["scaleTargetRef"]["name"]: each["spec"]["minReplicas"]
        for each in of_kind(objects, "HorizontalPodAutoscaler")
    }
    cores, memory = 0.0, 0.0
    for each in workloads(objects):
        pods = fewest.get(each.name) or each.spec["replicas"]
        asks = [
            one["resources"]["requests"] for one in each.containers
        ]  # an init container runs before the others
        cores += pods * max(quantity(one["cpu"]) for one in asks)
        memory += pods * max(quantity(one["memory"]) for one in asks)
    assert f"ask for {cores:.2f} cores and {memory / GIB:.1f} GiB" in DOCUMENTATION.read_text()


def example(containing: str, page: Path = DOCUMENTATION) -> str:
    """The one example of a page with this text in it."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    [found] = [block for block in blocks if containing in block]
    return str(found)


def metric_of(trigger: dict[str, Any]) -> str:
    found = re.findall(r"kafscale_\w+", trigger["metadata"].get("query", ""))
    return str(found[0]) if found else str(trigger["type"])


def namespaced(objects: Objects) -> Iterator[Manifest]:
    return (each for each in objects if each["kind"] not in ("Namespace", "PriorityClass"))
