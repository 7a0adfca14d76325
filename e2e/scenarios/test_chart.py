"""The Helm chart: it makes the objects that kustomize makes, so every law of the manifests holds for it too.

Helm itself renders it; no cluster is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import pytest
import yaml

from e2e.checkers.manifests.laws import LAWS
from e2e.checkers.manifests.objects import POD_NAME, of_kind
from e2e.checkers.manifests.same import OF_THE_TOOL, differences
from e2e.harness.combinations import EACH, ONE, PRODUCTION, SECURE, VALUES, combination
from e2e.harness.manifests import CHART, RELEASES, Manifest, Refused, charted, check

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


@pytest.fixture(scope="module")
def made() -> Mapping[str, list[Manifest]]:
    return {name: charted(values) for name, values in VALUES.items()}


each_one = pytest.mark.parametrize("name", VALUES)


@each_one
def test_the_chart_makes_what_kustomize_makes(
    made: Mapping[str, list[Manifest]], name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert differences(combination(name, tmp_path_factory.mktemp("overlay")), made[name]) == []


@each_one
@pytest.mark.parametrize("law", LAWS)
def test_every_law_holds(made: Mapping[str, list[Manifest]], name: str, law: str) -> None:
    assert LAWS[law](made[name]) == []


@each_one
def test_every_object_is_what_its_kinds_schema_says(made: Mapping[str, list[Manifest]], name: str) -> None:
    """In the newest release: test_service_manifests.py holds the same objects against all of them."""
    for manifest in made[name]:
        check(manifest, RELEASES[-1])


def test_each_switch_of_the_chart_is_compared_on_and_off() -> None:
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
    assert {name: law(objects) for name, law in LAWS.items() if law(objects)} == {}


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
    assert {name: law(objects) for name, law in LAWS.items() if law(objects)} == {}


def test_upkeep_may_be_left_to_jobs() -> None:
    objects = charted({**PRODUCTION, "services": {"upkeep": {"enabled": False}}})
    assert not [each for each in objects if each["metadata"]["name"] == "kafscale-upkeep"]
    assert {name: law(objects) for name, law in LAWS.items() if law(objects)} == {}


def test_a_changed_setting_changes_the_pods(made: Mapping[str, list[Manifest]]) -> None:
    other = charted({**PRODUCTION, "settings": {"KAFSCALE_S3_BUCKET": "records"}})
    for kind in ("Deployment", "StatefulSet"):
        before = [each["spec"]["template"] for each in of_kind(made["production"], kind)]
        after = [each["spec"]["template"] for each in of_kind(other, kind)]
        assert before
        assert all(one != two for one, two in zip(before, after, strict=True))


def test_a_difference_is_seen(made: Mapping[str, list[Manifest]]) -> None:
    """In each leaf of an object of each kind, but those of the tool: the comparison overlooks nothing."""
    objects = made["production-keda"]
    count = 0
    for kind in sorted({each["kind"] for each in objects}):
        manifest = next(of_kind(objects, kind))
        assert differences(objects, [each for each in objects if each is not manifest]) != []
        for path in leaves(manifest):
            if not any(str(step).startswith(OF_THE_TOOL) for step in path):
                assert differences([manifest], [changed(manifest, path)]) != [], (kind, path)
                count += 1
    assert count > 500


def switches(values: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each yes or no, and the kind of the address for clients outside, by its path."""
    for key, value in values.items():
        if isinstance(value, bool) or key == "kind":
            yield (*above, key), value
        elif isinstance(value, Mapping):
            yield from switches(value, (*above, key))


def leaves(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*above, key))
    elif isinstance(value, list) and value:
        for at, each in enumerate(value):
            yield from leaves(each, (*above, at))
    else:
        yield above


def changed(manifest: Manifest, path: tuple[Any, ...]) -> Manifest:
    made = deepcopy(manifest)
    *steps, last = path
    at: Any = made
    for step in steps:
        at = at[step]
    at[last] = f"{at[last]} changed"
    return made
