"""The Helm chart: it makes the objects of the overlays for production, and the laws of the manifests hold for it too.

Helm itself renders it; no cluster is needed. `test_rendered.py` compares what it makes with every option switched on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.checkers.manifests.laws import broken
from e2e.checkers.manifests.objects import POD_NAME, of_kind
from e2e.checkers.manifests.same import differences
from e2e.harness.combinations import (
    EACH,
    ONE,
    OVERLAYS,
    PRODUCTION,
    SECURE,
    VALUES,
    WITH_CONSOLE,
    combination,
)
from e2e.harness.manifests import CHART, RELEASES, Refused, charted, check, rendered

DOCUMENTATION: Final = CHART.parent.parent / "docs" / "kubernetes.md"
REFUSED: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "no etcd": ({}, "name your etcd"),
    "a typing error": ({**PRODUCTION, "intarnalTls": True}, "intarnalTls"),
    "a typing error in a setting": ({**PRODUCTION, "settings": {"KAFSCALE S3": "x"}}, "KAFSCALE S3"),
    "a number for a setting": ({**PRODUCTION, "settings": {"KAFSCALE_NUM_PARTITIONS": 6}}, "string"),
    "a service that there is not": ({**PRODUCTION, "services": {"broker": {}}}, "broker"),
    "an open address": ({**PRODUCTION, "outside": {**EACH, "public": True}, "tls": True}, "needs tls and"),
    "TLS for nobody": ({**PRODUCTION, "tls": True}, "tls needs outside.kind"),
    "ACLs, and services that believe everybody": (
        {**PRODUCTION, "outside": ONE, "tls": True, "authorization": True},
        "needs tls and internalTls",
    ),
    "no domain": ({**PRODUCTION, "outside": {"kind": "per-pod-addresses"}}, "outside.domain"),
    "no address": ({**PRODUCTION, "outside": {"kind": "one-address"}}, "outside.address"),
}

pytestmark = pytest.mark.timeout(900)

each_one = pytest.mark.parametrize("name", VALUES)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_chart_makes_what_kustomize_makes(name: str) -> None:
    assert differences(rendered(name), charted(OVERLAYS[name])) == []


def test_the_chart_makes_the_console_that_kustomize_makes(tmp_path: Path) -> None:
    assert differences(combination("a console", tmp_path), charted(WITH_CONSOLE)) == []


def test_a_difference_between_the_chart_and_kustomize_is_seen() -> None:
    objects = rendered("production")
    other = deepcopy(objects)
    [door] = list(of_kind(other, "StatefulSet"))
    door["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "1Gi"
    assert differences(objects, objects) == []
    assert len(differences(objects, other)) == 1
    assert len(differences(objects, [each for each in other if each is not door])) == 1


@each_one
def test_the_laws_hold_and_every_object_is_what_its_kinds_schema_says(name: str) -> None:
    """In the newest release: test_job_manifests.py holds the overlays against all of them."""
    objects = charted(VALUES[name])
    assert broken(objects) == []
    for manifest in objects:
        check(manifest, RELEASES[-1])


def test_each_switch_of_the_chart_is_rendered_on_and_off() -> None:
    """But for those of single services, of which only upkeep may be off."""
    default = yaml.safe_load((CHART / "values.yaml").read_text())
    used = {path: {default_value} for path, default_value in switches(default)}
    for values in VALUES.values():
        for path, value in switches(values):
            used[path].add(value)
    assert {path for path, seen in used.items() if len(seen) == 1 and path[0] != "services"} == set()


@pytest.mark.parametrize("why", REFUSED)
def test_wrong_values_are_refused_with_a_reason(why: str) -> None:
    values, said = REFUSED[why]
    with pytest.raises(Refused, match=said):
        charted(values)


def test_as_many_addresses_as_front_doors_come_of_one_number() -> None:
    pods = {"frontdoor": {"pods": {"min": 3, "max": 9}}}
    objects = charted({**PRODUCTION, "outside": EACH, "services": pods, **SECURE})
    named = {each["spec"]["selector"].get(POD_NAME) for each in of_kind(objects, "Service")} - {None}
    assert named == {f"kafscale-frontdoor-{ordinal}" for ordinal in range(9)}
    assert broken(objects) == []


def test_the_values_of_the_documentation_are_taken() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    [values] = [yaml.safe_load(block) for block in blocks if block.startswith("image: {registry")]
    objects = charted(values)
    [monitor] = of_kind(objects, "PodMonitor")
    assert values["prometheus"]["labels"].items() <= monitor["metadata"]["labels"].items()
    [policy] = [each for each in objects if each["metadata"]["name"] == "kafscale-to-external-etcd"]
    assert policy["spec"]["egress"][0]["to"] == [
        {"ipBlock": each} for each in values["network"]["etcd"]["to"]
    ]
    assert broken(objects) == []


def test_upkeep_may_be_left_to_jobs() -> None:
    objects = charted({**PRODUCTION, "services": {"upkeep": {"enabled": False}}})
    assert not [each for each in objects if each["metadata"]["name"] == "kafscale-upkeep"]
    assert broken(objects) == []


def test_a_changed_setting_changes_the_pods() -> None:
    made = charted(PRODUCTION)
    other = charted({**PRODUCTION, "settings": {"KAFSCALE_S3_BUCKET": "records"}})
    for kind in ("Deployment", "StatefulSet"):
        before = [each["spec"]["template"] for each in of_kind(made, kind)]
        after = [each["spec"]["template"] for each in of_kind(other, kind)]
        assert before
        assert all(one != two for one, two in zip(before, after, strict=True))


def switches(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each yes or no, and the kind of the address for clients outside, by its path."""
    for key, value in values.items():
        if isinstance(value, bool) or key == "kind":
            yield (*above, key), value
        elif isinstance(value, Mapping):
            yield from switches(value, (*above, key))
