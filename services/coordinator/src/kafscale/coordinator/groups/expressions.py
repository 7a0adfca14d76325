"""What the regular expressions of consumer groups may match: topics that their member may describe.

Laws: without an authorizer an expression matches every topic. With one, each expression belongs to a principal at a
host, also in the group's record, so that another coordinator resolves it alike. ACLs have no event here: heartbeats
compare their generation, so a change of ACLs is applied within a heartbeat interval, to all groups at once.
"""

from __future__ import annotations

from collections.abc import Callable

from kafscale.access.authorizer import Authorizer
from kafscale.access.principals import Principal, acl_host
from kafscale.access.rules import Side, When, needs_of
from kafscale.coordinator.consumer.model import Expression, Sees, sees_all
from kafscale.wire.apis import ApiKey

(DESCRIBE,) = (
    need for need in needs_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, Side.SERVICE) if need.when is When.EXPRESSION
)


class Expressions:
    """`changed` is called when the ACLs have changed."""

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
