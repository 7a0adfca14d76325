"""What a deletion would destroy, in words."""

from __future__ import annotations

from kafscale.operations.consent import GROUPS_NAMED_MAX, SEEN_BY_CLIENT, loss_sentence


def test_groups_are_named_once_and_those_that_lose_most_come_first() -> None:
    losses = [{"group": group, "records": count} for group, count in (("b", 1), ("a", 5), ("b", 1_000))]
    assert loss_sentence(losses) == "groups that would lose records that they have not read: b 1,001, a 5"
    assert loss_sentence([], "would skip") == "no group would skip records that it has not read"
    seen = "no group that you may see would lose records that it has not read"
    assert loss_sentence([], nobody=SEEN_BY_CLIENT) == seen
    many = [{"group": f"g{number:02}", "records": 1} for number in range(GROUPS_NAMED_MAX + 3)]
    assert loss_sentence(many).endswith(f"g{GROUPS_NAMED_MAX - 1:02} 1, and 3 more groups")
