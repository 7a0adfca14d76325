"""Small ACLs that meet each other often: few names that are prefixes of each other, few principals and hosts."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st
from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal

NAMES = ["*", "a", "ab", "abc", "b", "ba", "*a", "hardcode", "hard", "é", "éa"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP]
PATTERNS = [PatternType.LITERAL, PatternType.PREFIXED]
PRINCIPALS = [Principal("User:alice"), Principal("User:bob"), Principal("User:*"), Principal("Team:alice")]
HOSTS = ["*", "10.0.0.1", "0:0:0:0:0:0:0:1"]
OPERATIONS = [operation for operation in Operation if operation > Operation.ANY]
PERMISSIONS = [Permission.ALLOW, Permission.DENY]

operations = st.sampled_from(OPERATIONS)
bindings = st.builds(
    AclBinding,
    resource_type=st.sampled_from(TYPES),
    pattern_type=st.sampled_from(PATTERNS),
    resource_name=st.sampled_from(NAMES),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=operations,
    permission=st.sampled_from(PERMISSIONS),
)


def drawn_binding(chance: Random) -> AclBinding:
    """A binding from a random generator: cheaper than Hypothesis for ten thousand sets."""
    return AclBinding(
        resource_type=chance.choice(TYPES),
        pattern_type=chance.choice(PATTERNS),
        resource_name=chance.choice(NAMES),
        principal=chance.choice(PRINCIPALS),
        host=chance.choice(HOSTS),
        operation=chance.choice(OPERATIONS),
        permission=chance.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )
