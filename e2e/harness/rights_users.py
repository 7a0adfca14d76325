"""Users with different rights, who ask both systems the requests of rights_rows.py.

Each user has ACLs of a kind: none, a single right, all but a single right, names, prefixes, `*`, hosts, a super user.
The rights are on everything whose name begins with `START`, so a request that needs other rights than expected is
answered otherwise by one of the two systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.access.acl import SUPPORTED_OPERATIONS, AclBinding, ResourceType
from kafscale.testkit.acls import acl

START: Final = "of-"
"""The names of all rows begin with it."""
OTHER_HOST: Final = "10.0.0.1"
TYPES: Final = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
Allowed = Sequence[str]
"""Patterns with operations, as `kafscale.testkit.acls.acl` reads them."""


@dataclass(frozen=True, slots=True)
class User:
    name: str
    allow: Allowed = ()
    deny: Allowed = ()
    allow_host: str = "*"
    deny_host: str = "*"

    def acls(self) -> Iterator[AclBinding]:
        who = f"User:{self.name}"
        for text in self.allow:
            yield acl(text, principal=who, host=self.allow_host)
        for text in self.deny:
            yield acl(text, principal=who, host=self.deny_host, deny=True)


def _on(pattern: str, types: Sequence[ResourceType] = TYPES) -> list[str]:
    """The pattern for each type. The cluster has one name and no others."""
    return [
        "CLUSTER:LITERAL:kafka-cluster" if type_ is ResourceType.CLUSTER else f"{type_.name}:{pattern}"
        for type_ in types
    ]


def users(names: Sequence[str]) -> list[User]:
    """All users. `names` are those that the rows use. The last has every right, so it shows that all ACLs are there."""
    every, started = _on("LITERAL:*"), _on(f"PREFIXED:{START}")
    literal = sorted({text for name in names for text in _on(f"LITERAL:{name}")})
    single = [
        (f"{type_.name.replace('_', '-')}-{operation.name.replace('_', '-')}", f"{pattern} {operation.name}")
        for type_ in TYPES
        for (pattern,) in [_on(f"PREFIXED:{START}", [type_])]
        for operation in sorted(SUPPORTED_OPERATIONS[type_])
    ]
    return [
        User("none"),
        *(User(f"only-{name}", allow=[text]) for name, text in single),
        *(User(f"all-but-{name}", allow=every, deny=[text]) for name, text in single),
        User("literal", allow=literal),
        User("literal-denied", allow=every, deny=literal),
        User("prefixed", allow=started),
        User("prefixed-denied", allow=every, deny=started),
        User("prefix-of-others", allow=_on(f"PREFIXED:{START}x", TYPES[:-1])),
        User("any-denied", allow=[*literal, *started], deny=every),
        User("other-host", allow=every, allow_host=OTHER_HOST),
        User("denied-at-other-host", allow=every, deny=every, deny_host=OTHER_HOST),
        User("this-host", allow=every, allow_host="127.0.0.1"),
        User("root", deny=every),
        User("any", allow=every),
    ]


IN_EACH_VERSION: Final = ("none", "any", "any-denied", "only-TOPIC-DESCRIBE", "only-GROUP-DESCRIBE")
"""The users who ask in older versions too."""
