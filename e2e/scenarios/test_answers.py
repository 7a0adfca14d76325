"""Whole answers to every API, good and bad, field by field beside an Apache Kafka's.

Laws: in every version that both serve, the fields are equal, except ids, addresses and the words of errors. No field is
null that is never null in an answer of Apache Kafka: clients are tested with Kafka's answers, and some end at any other
null. Entities and keys of quotas have Kafka's order. (ApiVersions is not compared: each system has its own list.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import describe_client_quotas

from e2e.harness.answer_cases import ALL, BY_CHANCE, DIFFERENT, SAME, quotas
from e2e.harness.answers import TAG, answer_of, comparable, differences, nulls
from e2e.harness.kafka_tools import require_java
from e2e.harness.prepared import World
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.rights_answers import offered, ready_for_groups, versions_of
from e2e.harness.rights_rows import Case
from e2e.harness.secured_pair import System, secured_pair

NULLS_MIN: Final = 10

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True, slots=True)
class Asked:
    label: str
    version: int

    @property
    def about(self) -> str:
        return f"{TAG}{self.label.replace(' ', '-').replace(',', '')}-{self.version}-"


@dataclass(frozen=True)
class Both:
    ours: Mapping[Asked, Any]
    theirs: Mapping[Asked, Any]
    systems: tuple[System, System]


def everything(system: System, versions: Mapping[int, tuple[int, int]]) -> dict[Asked, Any]:
    ready_for_groups(system)
    found = {}
    for case in ALL:
        for version in versions_of(case, versions):
            asked = Asked(case.label, version)
            world = World(topic=asked.about, group=asked.about, session_ms=60_000)
            with Raw.to(system.plain) as raw:
                world = case.prepare(raw, world)
            found[asked] = answer_of(system.plain, case, version, case.content(world, version))
    return found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    require_java()
    with secured_pair(tmp_path_factory.mktemp("answers"), ["alice"]) as pair, ThreadPoolExecutor() as pool:
        ours, theirs = (offered(system) for system in pair)
        versions = {
            key: (max(ends[0], theirs[key][0]), min(ends[1], theirs[key][1]))
            for key, ends in ours.items()
            if ends[0] >= 0 and key in theirs
        }
        found = list(pool.map(lambda system: everything(system, versions), pair))
        for system, answers in zip(pair, found, strict=True):
            lines = (f"{asked.label} v{asked.version}\t{answer}\n" for asked, answer in answers.items())
            (tmp_path_factory.getbasetemp() / f"answers-{system.name}.txt").write_text("".join(lines))
        yield Both(found[0], found[1], pair)


def why_different(case: Case) -> str:
    return "" if case.label in SAME else case.differs or DIFFERENT.get(case.label, "")


@pytest.mark.parametrize("label", [case.label for case in ALL if not why_different(case)])
def test_an_answer_is_that_of_apache_kafka_field_by_field(both: Both, label: str) -> None:
    versions = [asked for asked in both.theirs if asked.label == label]
    assert versions
    wrong = {}
    for asked in versions:
        mine, its = (comparable(side[asked], asked.about) for side in (both.ours, both.theirs))
        if found := list(differences(mine, its)):
            wrong[f"v{asked.version}"] = found
    assert wrong == {}


@pytest.mark.parametrize(
    "label", [case.label for case in ALL if why_different(case) and case.label not in BY_CHANCE]
)
def test_what_differs_on_purpose_still_differs(both: Both, label: str) -> None:
    """A difference that is gone must be compared."""
    assert any(
        list(differences(*(comparable(side[asked], asked.about) for side in (both.ours, both.theirs))))
        for asked in both.theirs
        if asked.label == label
    )


def test_no_field_is_null_that_apache_kafka_never_leaves_null(both: Both) -> None:
    keys = {case.label: int(case.key) for case in ALL}
    ours, theirs = (
        {at for asked, answer in side.items() for at in nulls(keys[asked.label], answer)}
        for side in (both.ours, both.theirs)
    )
    assert len(theirs) > NULLS_MIN
    assert ours - theirs == set()


def test_quotas_have_entities_and_keys_in_the_order_of_apache_kafka(both: Both) -> None:
    seen = []
    for system in both.systems:
        with Raw.to(system.plain) as raw:
            name = f"{TAG}order"
            quotas(raw, World(topic=name, group=name))
            component = describe_client_quotas.DescribeClientQuotasRequestComponent(
                entity_type="user", match_type=0, match=name
            )
            request = describe_client_quotas.DescribeClientQuotasRequest(components=[component])
            entries = ask(raw, describe_client_quotas, 1, request).entries
        named = [
            ([(part.entity_type, part.entity_name) for part in entry.entity], [v.key for v in entry.values])
            for entry in entries
        ]
        seen.append(sorted(named, key=repr))
    assert len(seen[0]) > 1
    assert seen[0] == seen[1]


def test_every_api_that_both_serve_is_compared(both: Both) -> None:
    served = set[int].intersection(*(set(offered(system)) for system in both.systems))
    ours = {key for key, ends in offered(both.systems[0]).items() if ends[0] >= 0}
    assert {int(case.key) for case in ALL} | {ApiKey.API_VERSIONS} == served & ours
