"""What an operation would destroy or change, as a person must see it before it is done. Pure.

An operation that deletes or overwrites makes its `ChangePlan` first. A person sees it, and only then says yes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafscale.runtime.redaction import harmless

LOSS_COLUMNS: Final = ("group", "topic", "partition", "committed", "start", "records")
GROUPS_NAMED_MAX: Final = 10

Row = dict[str, Any]

SEEN_BY_CLIENT: Final = "no group that you may see"
"""For `ChangePlan.nobody`, if the groups were listed by Kafka's API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """What an operation would destroy or change.

    `what`: a sentence without a full stop, as "3 segments of 2 logs, 100 bytes". `question`: as "Delete them?".
    `losses`: rows with LOSS_COLUMNS; None if no group can lose records. `losing`: what happens to the groups.
    `nobody`: which groups were looked at, if no loss was found: those that ACLs hide from the user are not among them.
    `more`: further values of the JSON of a dry run.
    """

    what: str
    question: str
    columns: Sequence[str]
    rows: Sequence[Row]
    losses: Sequence[Row] | None = None
    losing: str = "would lose"
    nobody: str = "no group"
    more: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> list[str]:
        """Sentences for a person or for the log of a script, without the control codes of hostile names."""
        losses = [] if self.losses is None else [loss_sentence(self.losses, self.losing, self.nobody)]
        return [harmless(fact) for fact in (self.what, *losses)]


def loss_sentence(losses: Sequence[Row], losing: str = "would lose", nobody: str = "no group") -> str:
    """Names the groups with the most unread records."""
    by_group = Counter[str]()
    for loss in losses:
        by_group[loss["group"]] += loss["records"]
    if not by_group:
        return f"{nobody} {losing} records that it has not read"
    groups = sorted(by_group, key=lambda group: (-by_group[group], group))
    named = [f"{group} {by_group[group]:,}" for group in groups[:GROUPS_NAMED_MAX]]
    if len(groups) > GROUPS_NAMED_MAX:
        named.append(f"and {len(groups) - GROUPS_NAMED_MAX} more groups")
    return f"groups that {losing} records that they have not read: {', '.join(named)}"


def listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
