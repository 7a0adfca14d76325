"""What each API answers to users with different rights, by KafScale and by an Apache Kafka with the same ACLs.

Laws: in every version that both serve, the same error codes, and the same names, operations and fields are left out.
Rows whose allowed answers differ say why in words (`differs`); their errors of authorization are the same all the same.
Every API that is served has a row, and every row that needs a right is denied to the user who has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from e2e.harness.kafka_tools import require_java
from e2e.harness.rights_answers import Asked, Asking, Seen, offered, versions_of
from e2e.harness.rights_rows import CASES, NOT_COMPARED
from e2e.harness.rights_users import users
from e2e.harness.secured_pair import secured_pair

NEEDS_NOTHING = {"DescribeCluster", "AlterConfigs of a logger"}
"""The first answers all but the operations, the second is an invalid request, for every user."""
LEFT_OUT = {
    "ListGroups",
    "ListTransactions",
    "Metadata of all topics",
    "DescribeTopicPartitions of all topics",
    "DescribeLogDirs",  # before version 3
}
"""A denial has no error in the answer, but less."""

pytestmark = pytest.mark.timeout(1_200)


@dataclass(frozen=True)
class Answers:
    ours: Mapping[Asked, Seen]
    theirs: Mapping[Asked, Seen]
    served: frozenset[int]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    require_java()
    folder = tmp_path_factory.mktemp("rights")
    people = [user.name for user in users([])]
    with secured_pair(folder, people) as pair, ThreadPoolExecutor() as pool:
        ours, theirs = (offered(system) for system in pair)
        both = {
            key: (max(ends[0], theirs[key][0]), min(ends[1], theirs[key][1]))
            for key, ends in ours.items()
            if ends[0] >= 0 and key in theirs
        }
        names = [case.name(versions_of(case, both)[-1]) for case in CASES]
        askings = [Asking(system, both) for system in pair]
        found = list(pool.map(lambda asking: asking.everything(CASES, users(names)), askings))
        for asking, said in zip(askings, found, strict=True):
            lines = (f"{asked}\t{seen.text}\n" for asked, seen in said.items())
            (tmp_path_factory.getbasetemp() / f"rights-{asking.system.name}.txt").write_text("".join(lines))
        yield Answers(found[0], found[1], frozenset(both))


def test_every_api_that_is_served_has_a_row(answers: Answers) -> None:
    assert answers.served == {case.key for case in CASES} | NOT_COMPARED.keys()


@pytest.mark.parametrize("label", [case.label for case in CASES])
def test_every_user_gets_the_answer_that_apache_kafka_gives(answers: Answers, label: str) -> None:
    asked = [each for each in answers.theirs if each.label == label]
    assert asked
    different = {
        f"{each.user} v{each.version}": (answers.ours[each].text, answers.theirs[each].text)
        for each in asked
        if answers.ours[each] != answers.theirs[each]
    }
    assert different == {}


@pytest.mark.parametrize("label", [case.label for case in CASES if case.label not in NEEDS_NOTHING])
def test_a_right_decides_about_every_row(answers: Answers, label: str) -> None:
    versions = {each.version for each in answers.theirs if each.label == label}
    for version in versions:
        denied, allowed = (answers.theirs[Asked(label, version, user)] for user in ("none", "any"))
        assert not allowed.denied
        assert denied.denied or (label in LEFT_OUT and denied != allowed)
