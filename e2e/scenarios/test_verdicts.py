"""The authorizer of KafScale against StandardAuthorizer of Apache Kafka, over ten thousand random sets of ACLs.

Laws: for each set, after additions and removals, both give the same verdict on each resource, the same verdict on any
resource of a type (authorizeByResourceType), and the same ACLs for a filter. One difference is on purpose: for Kafka,
an ACL on `*` does not apply to a longer name that begins with `*`. There Kafka decides as KafScale does without the
ACLs on `*`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from kafscale.access.acl import AclBinding
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import java_host, parse_super_users

from e2e.harness.kafka_tools import require_java
from e2e.harness.verdicts import SUPER_USERS, Answer, Case, Question, drawn_case, kafkas_answers

SETS = int(os.environ.get("SETS", "10000"))
SEED = int(os.environ.get("SEED", "20"))

pytestmark = pytest.mark.timeout(600)


def authorizer_of(case: Case, *, without: Iterable[AclBinding] = ()) -> Authorizer:
    index = AclIndex(case.loaded)
    for acl in case.added:
        index.add(acl)
    for acl in (*case.removed, *without):
        index.remove(acl)
    return Authorizer(
        index, super_users=parse_super_users(SUPER_USERS), allow_everyone_if_no_acl_found=case.default
    )


def allowed(authorizer: Authorizer, question: Question) -> bool:
    mine = authorizer.rights(question.principal, java_host(question.address))
    verdict = mine.allows(question.operation, question.resource_type, question.name)
    explained = mine.explain(question.operation, question.resource_type, question.name)
    assert explained.allowed is verdict
    return verdict


def differences(case: Case, answer: Answer, seen: Counter[str]) -> list[object]:
    """The questions that Kafka answers otherwise. `seen` counts what the comparison has met."""
    ours = authorizer_of(case)
    without_wildcards = authorizer_of(case, without=[acl for acl in ours.acls if acl.is_wildcard])
    found: list[object] = []
    for question, verdict, of_any in zip(case.questions, answer.verdicts, answer.any, strict=True):
        starred = question.name[:1] == "*" and question.name != "*"
        asked = without_wildcards if starred else ours
        if allowed(asked, question) is not verdict:
            found.append((question, verdict))
        mine = ours.rights(question.principal, java_host(question.address))
        if mine.allows_any(question.operation, question.resource_type) is not of_any:
            found.append((question, "any", of_any))
        seen.update([f"starred {verdict}" if starred else f"plain {verdict}", f"any {of_any}"])
    selected = frozenset(ours.acls.matching(case.wanted))
    seen["found"] += len(selected)
    if selected != answer.found:
        found.append((case.wanted, selected ^ answer.found))
    return found


def test_random_sets_of_acls_get_the_verdicts_of_apache_kafka() -> None:
    require_java()
    chance = Random(SEED)
    cases = [drawn_case(chance) for _ in range(SETS)]
    seen = Counter[str]()
    for case, answer in zip(cases, kafkas_answers(cases), strict=True):
        assert differences(case, answer, seen) == [], case.as_json()
    assert seen["plain True"] + seen["plain False"] > 5 * SETS
    for kind in ("plain True", "plain False", "any True", "any False", "found"):
        assert seen[kind] > SETS / 2, seen
    for kind in ("starred True", "starred False"):
        assert seen[kind] > SETS / 100, seen
