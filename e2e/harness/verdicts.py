"""Random sets of ACLs with questions about them, and the answers of Apache Kafka's StandardAuthorizer in a JVM.

The sets are drawn so that ACLs meet each other and the questions often: few principals and hosts, and names that are
prefixes of each other. kafka/Verdicts.java says what the JVM reads and prints.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from kafscale.access.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.principals import ANY_PRINCIPAL, Principal

from e2e.harness.apache import KAFKA, kafka_classpath, kafka_version
from e2e.harness.kafka_tools import JAVA
from e2e.harness.services import dying_with_parent

JVM_TIMEOUT_S: Final = 300.0
SUPER_USERS: Final = "User:root; Team:a:b"
"""`super.users`, with a space and a name that contains a colon."""
ADDRESSES: Final = ("10.0.0.1", "10.0.0.10", "::1", "::ffff:10.0.0.1", "fe80:0::A")
"""As a socket names them. Java prints the last three in another form."""
HOSTS: Final = ("*", "*", "*", "10.0.0.1", "10.0.0.10", "0:0:0:0:0:0:0:1", "::1", "fe80:0:0:0:0:0:0:a")
"""In ACLs. `::1` is no form of Java's, so it matches no client."""
PRINCIPALS: Final = tuple(
    map(Principal, ("User:alice", "User:alic", "User:*", "User:root", "Team:alice", "Team:a:b", "User:"))
)
ASKERS: Final = tuple(principal for principal in PRINCIPALS if principal != ANY_PRINCIPAL)
"""Kafka throws for each request of a client whose name is `*`."""
TYPES: Final = tuple(type_ for type_ in ResourceType if type_ > ResourceType.ANY)
PATTERNS: Final = (PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED)
OPERATIONS: Final = tuple(operation for operation in Operation if operation > Operation.ANY)
MAIN_OPERATIONS: Final = (Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE)
ALLOW, DENY = Permission.ALLOW, Permission.DENY
KNOWN_NAMES: Final = (
    "orders",
    "order",
    "orders-eu",
    "Orders",
    "o",
    "hardcode",
    "hard",
    "é",
    "éa",
    "\N{GRINNING FACE}",
    "\N{GRINNING FACE}a",
    "\N{GRINNING FACE WITH SMILING EYES}",  # its first UTF-16 unit is that of the one before
    CLUSTER_NAME,
)
LETTERS: Final = "ab*"
"""Of names that are drawn."""
ASKED_NAMES: Final = ("", "!a", "orders/eu")
"""Of resources alone. No ACL begins with a character before `*`: Kafka 4.3.1 then searches without end, or throws."""

Json = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`name` is asked literally, and the operation also on any resource of the type."""

    principal: Principal
    address: str
    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`loaded` is there at first, `added` comes, and `removed`, which is part of both, goes."""

    default: bool
    loaded: Sequence[AclBinding]
    added: Sequence[AclBinding]
    removed: Sequence[AclBinding]
    questions: Sequence[Question]
    wanted: AclFilter

    def as_json(self) -> str:
        return json.dumps(
            {
                "default": self.default,
                "loaded": list(map(_acl_json, self.loaded)),
                "added": list(map(_acl_json, self.added)),
                "removed": list(map(_acl_json, self.removed)),
                "questions": [
                    [q.principal, q.address, q.operation, q.resource_type, q.name] for q in self.questions
                ],
                "filter": _acl_json(self.wanted),
            }
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Of Kafka. `any` is about any resource of the type."""

    verdicts: Sequence[bool]
    any: Sequence[bool]
    found: frozenset[AclBinding]


def _acl_json(acl: AclBinding | AclFilter) -> Json:
    where = [acl.resource_type, acl.pattern_type, acl.resource_name]
    return [*where, acl.principal, acl.host, acl.operation, acl.permission]


def _acl_of(codes: Json) -> AclBinding:
    type_, pattern, name, principal, host, operation, permission = codes
    return AclBinding(
        resource_type=ResourceType(type_),
        pattern_type=PatternType(pattern),
        resource_name=name,
        principal=principal,
        host=host,
        operation=Operation(operation),
        permission=Permission(permission),
    )


def drawn_case(chance: Random) -> Case:
    acls = list({_drawn_acl(chance) for _ in range(chance.choice((0, 1, 2, 4, 8, 16)))})
    chance.shuffle(acls)
    first = chance.randrange(len(acls) + 1)
    gone = chance.randrange(len(acls) // 3 + 1)
    return Case(
        default=chance.random() < 0.3,
        loaded=acls[:first],
        added=acls[first:],
        removed=chance.sample(acls, gone),
        questions=[_drawn_question(chance, acls) for _ in range(8)],
        wanted=_drawn_filter(chance, acls),
    )


def _drawn_name(chance: Random) -> str:
    if chance.random() < 0.15:
        return "*"
    if chance.random() < 0.4:
        return chance.choice(KNOWN_NAMES)
    return "".join(chance.choices(LETTERS, (8, 4, 2), k=chance.randint(1, 4)))


def _drawn_type(chance: Random) -> ResourceType:
    """Mostly the first, so that the ACLs of a set meet."""
    return TYPES[0] if chance.random() < 0.6 else chance.choice(TYPES)


def _drawn_operation(chance: Random, main: Sequence[Operation]) -> Operation:
    return chance.choice(main if chance.random() < 0.6 else OPERATIONS[1:])


def _drawn_acl(chance: Random) -> AclBinding:
    type_ = _drawn_type(chance)
    return AclBinding(
        resource_type=type_,
        pattern_type=chance.choice(PATTERNS),
        resource_name=CLUSTER_NAME if type_ is ResourceType.CLUSTER else _drawn_name(chance),
        principal=chance.choice(PRINCIPALS),
        host=chance.choice(HOSTS),
        operation=_drawn_operation(chance, MAIN_OPERATIONS),
        permission=chance.choice((ALLOW, ALLOW, DENY)),
    )


def _drawn_question(chance: Random, acls: Sequence[AclBinding]) -> Question:
    """Half of them are about the name of an ACL, or about one that begins with it."""
    near = chance.choice(acls) if acls and chance.random() < 0.5 else None
    name = chance.choice(ASKED_NAMES) if chance.random() < 0.05 else _drawn_name(chance)
    return Question(
        principal=chance.choice(ASKERS),
        address=chance.choice(ADDRESSES),
        operation=_drawn_operation(chance, MAIN_OPERATIONS[1:]),
        resource_type=near.resource_type if near else _drawn_type(chance),
        name=near.resource_name + chance.choice(("", "a")) if near else name,
    )


def _drawn_filter(chance: Random, acls: Sequence[AclBinding]) -> AclFilter:
    """One in which most fields select everything, and the others are those of an ACL that is there."""
    acl = chance.choice(acls) if acls else _drawn_acl(chance)
    fields: dict[str, Any] = {
        "resource_type": acl.resource_type,
        "pattern_type": chance.choice((acl.pattern_type, PatternType.MATCH)),
        "resource_name": acl.resource_name + chance.choice(("", "a")),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission": acl.permission,
    }
    return AclFilter(**{field: value for field, value in fields.items() if chance.random() < 0.3})


def kafkas_answers(cases: Sequence[Case]) -> list[Answer]:
    """In their order, from one JVM."""
    done = subprocess.run(
        [
            *dying_with_parent(),
            *JAVA,
            *("-cp", kafka_classpath(kafka_version()), str(KAFKA / "Verdicts.java"), SUPER_USERS),
        ],
        input="".join(f"{case.as_json()}\n" for case in cases),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=JVM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return [Answer(each["verdicts"], each["any"], frozenset(map(_acl_of, each["found"]))) for each in answers]
