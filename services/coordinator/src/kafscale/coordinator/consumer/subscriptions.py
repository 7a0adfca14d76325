"""The topics of a member's subscription: by name, by regular expression, or both (KIP-848, "Regular expressions").

An expression matches only topics that its member may describe. Without an authorizer these are all. With one, each
expression belongs to a principal at a host, also in the group's record, so that another coordinator resolves it alike.
ACLs have no event here: heartbeats compare their generation, so a change of ACLs is applied within a heartbeat
interval, to all groups at once.

Expressions are RE2 and match the whole name, as in Kafka since 4.0. Matching takes linear time for every expression.
With Python's `re`, the expression of one client could block the coordinator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import re2  # type: ignore[import-untyped]
from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import Principal, acl_host
from kafscale.access.rules import Side, When, needs_of
from kafscale.coordinator.consumer.model import (
    Expression,
    Group,
    Matches,
    Member,
    MemberId,
    Sees,
    Topics,
    sees_all,
)
from kafscale.storage.keys import TopicId
from kafscale.wire.apis import ApiKey

MEMORY_BYTES_MAX = 1 << 20
"""Of one compiled expression. re2 caches at most 128 of them."""
(DESCRIBE,) = (
    need for need in needs_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, Side.SERVICE) if need.when is When.EXPRESSION
)


def compiled(expression: str) -> re2._Regexp | None:
    """None for what is no expression."""
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        return None


def is_valid(expression: str) -> bool:
    return compiled(expression) is not None


def matching(expression: str, topics: Topics) -> frozenset[str]:
    """The existing topics whose whole name the expression matches."""
    regexp = compiled(expression)
    if regexp is None:
        return frozenset()
    return frozenset(name for name in topics if regexp.fullmatch(name) is not None)


def all_matches(
    members: Iterable[Member], topics: Topics, sees: Sees, known: Matches | None = None
) -> dict[Expression, frozenset[str]]:
    """The topics that each expression of the members matches. `known`: earlier results for the same topics."""
    found = known or {}
    expressions = sorted({member.expression for member in members if member.expression is not None})
    new = sorted({one.text for one in expressions if one not in found})
    matched = {text: matching(text, topics) for text in new}
    return {one: found[one] if one in found else sees(one, matched[one.text]) for one in expressions}


def names_of(member: Member, matches: Matches) -> frozenset[str]:
    """All topics that the member is subscribed to, existing or not."""
    expression = member.expression
    if expression is None:
        return member.names
    return member.names | matches.get(expression, frozenset())


def topic_ids_of(member: Member, group: Group) -> frozenset[TopicId]:
    """The existing topics that the member is subscribed to."""
    topics = group.topics
    return frozenset(topics[name].topic_id for name in names_of(member, group.matches) if name in topics)


def topic_ids_by_member(group: Group) -> dict[MemberId, frozenset[TopicId]]:
    """`topic_ids_of` for each member. Members with equal subscriptions share one set."""
    distinct: dict[tuple[frozenset[str], Expression | None], frozenset[TopicId]] = {}
    found = {}
    for member_id, member in group.persisted.members.items():
        key = (member.names, member.expression)
        if key not in distinct:
            distinct[key] = topic_ids_of(member, group)
        found[member_id] = distinct[key]
    return found


def subscribed_topics(group: Group) -> frozenset[str]:
    """The topics of any member's subscription. OffsetDelete refuses these: GROUP_SUBSCRIBED_TO_TOPIC."""
    distinct = {(member.names, member.expression): member for member in group.persisted.members.values()}
    return frozenset().union(*(names_of(member, group.matches) for member in distinct.values()))


def metadata_hash(group: Group) -> bytes:
    """Changes when a subscribed topic is created, deleted, recreated, or gets partitions."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(subscribed_topics(group)):
        topic = group.topics.get(name)
        if topic is not None:
            digest.update(f"{name}\0{topic.topic_id.hex()}\0{topic.partitions}\0".encode(errors="replace"))
    return digest.digest()


class Expressions:
    """What members' expressions may match. `changed` is called when the ACLs have changed."""

    def __init__(self, authorizer: Authorizer | None, changed: Callable[[], None]) -> None:
        self._authorizer = authorizer
        self._changed = changed
        self._generation = 0 if authorizer is None else authorizer.acls.generation

    @property
    def sees(self) -> Sees:
        return sees_all if self._authorizer is None else self._seen

    def _seen(self, expression: Expression, topics: frozenset[str]) -> frozenset[str]:
        assert self._authorizer is not None, "without an authorizer everything is seen"
        # A member's host is stored as it is shown: with a slash before it (context.py).
        host = acl_host(expression.client_host.removeprefix("/"))
        rights = self._authorizer.rights(Principal(expression.principal), host)
        return frozenset(name for name in topics if DESCRIBE.met(rights, name))

    def follow_acls(self) -> None:
        if self._authorizer is not None and self._authorizer.acls.generation != self._generation:
            self._generation = self._authorizer.acls.generation
            self._changed()
