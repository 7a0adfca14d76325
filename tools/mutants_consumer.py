"""Mistakes planted in the consumer-group machine: rows of `mutants.Mutant`, as `Mutant(**row._asdict())`.

`MACHINE` is the search for a history that breaks a law; the other tests are stories.
"""

from __future__ import annotations

from typing import NamedTuple

TESTS = "services/coordinator/tests/consumer"
MACHINE = f"{TESTS}/test_consumer_machine.py"
HEARTBEAT = f"{TESTS}/test_consumer_heartbeat.py"
STATIC = f"{TESTS}/test_consumer_static.py"
CHECKS = f"{TESTS}/test_consumer_checks.py"
ASSIGNORS = f"{TESTS}/test_consumer_assignors.py"


class Planted(NamedTuple):
    name: str
    file: str
    before: str
    after: str
    tests: str
    source: str = "services/coordinator/src"
    package: str = "kafscale/coordinator"


def consumer(name: str, file: str, before: str, after: str, tests: str = MACHINE) -> Planted:
    return Planted(name, f"consumer/{file}", before, after, tests)


PLANTED = (
    consumer(
        "a partition is given before it is released",
        "reconcile.py",
        "if (held := held_by_others(topic, some))",
        "if (held := some - some)",
    ),
    consumer("silence is a revocation", "reconcile.py", "owned is None or", "owned is not None and"),
    consumer(
        "the epoch moves before the revocation",
        "reconcile.py",
        "return replace(member, state=MemberState.UNREVOKED_PARTITIONS,",
        "return replace(member, epoch=target_epoch, state=MemberState.UNREVOKED_PARTITIONS,",
    ),
    consumer(
        "what was revoked is not free", "reconcile.py", "revoking=NOTHING,", "revoking=member.revoking,"
    ),
    consumer(
        "who waits for partitions is stable",
        "reconcile.py",
        "MemberState.UNRELEASED_PARTITIONS if unreleased else",
        "MemberState.STABLE if unreleased else",
    ),
    consumer("any older epoch passes", "membership.py", "said == member.previous_epoch and ", ""),
    consumer(
        "a lost answer fences",
        "membership.py",
        "    if said < known and",
        "    if said > known > said and",
    ),
    consumer(
        "who lost an answer may own anything",
        "membership.py",
        "request.owned is not None and is_subset(request.owned, member.assigned)",
        "request.owned is not None",
        HEARTBEAT,
    ),
    consumer(
        "the group's epoch stays when a member goes",
        "membership.py",
        "return bumped(without(group, member_ids)) if",
        "return without(group, member_ids) if",
    ),
    consumer(
        "an instance id is taken from who has it",
        "membership.py",
        "        if before.epoch != STATIC_LEAVE_EPOCH:",
        "        if False:",
        STATIC,
    ),
    consumer(
        "an heir inherits no target",
        "membership.py",
        "inherited = group.saved.target.get(before.member_id, NOTHING)",
        "inherited = NOTHING",
    ),
    consumer(
        "who becomes another leaves what it had",
        "membership.py",
        "makes_epoch = member_id in group.saved.members",
        "makes_epoch = False",
        STATIC,
    ),
    consumer(
        "who goes for a while still has to revoke",
        "membership.py",
        "state=MemberState.STABLE, revoking=NOTHING",
        "state=MemberState.STABLE",
        STATIC,
    ),
    consumer(
        "changed topics are not seen",
        "machine.py",
        "subscriptions.metadata_hash(group) != group.saved.metadata_hash",
        "False",
    ),
    consumer(
        "each heartbeat prolongs the rebalance",
        "machine.py",
        "deadlines = deadlines._replace(rebalance_ms=before.rebalance_ms)",
        "pass",
        HEARTBEAT,
    ),
    consumer(
        "to revoke has no end",
        "machine.py",
        "revokes = member.state is MemberState.UNREVOKED_PARTITIONS",
        "revokes = False",
    ),
    consumer(
        "a heartbeat renews no session",
        "machine.py",
        "{**group.deadlines, member.member_id: deadlines}",
        "{member.member_id: deadlines, **group.deadlines}",
    ),
    consumer("what is due stays", "machine.py", "_first(due) <= now_ms", "_first(due) < now_ms"),
    consumer(
        "a commit of an older epoch passes", "machine.py", "member.epoch == member_epoch", "member.epoch"
    ),
    consumer(
        "a plain heartbeat writes",
        "machine.py",
        "return member if said == member else said",
        "return said",
    ),
    consumer("who says all is told nothing", "machine.py", "is_told = says_all or behind or", "is_told ="),
    consumer(
        "another subscription is no new epoch",
        "machine.py",
        "if found.makes_epoch or _subscribed_otherwise(found.member, said):",
        "if found.makes_epoch:",
    ),
    consumer(
        "a group with members can be deleted",
        "machine.py",
        "case GroupState.EMPTY:",
        "case GroupState.EMPTY | GroupState.STABLE:",
        CHECKS,
    ),
    consumer("a part of the name matches", "subscriptions.py", "regexp.fullmatch(", "regexp.search(", CHECKS),
    consumer(
        "the size of a topic does not matter",
        "subscriptions.py",
        "{topic.topic_id.hex()}\\0{topic.partitions}",
        "{topic.topic_id.hex()}",
    ),
    consumer(
        "uniform forgets who had what",
        "assignors.py",
        "kept = candidates[member_id].target.get(topic)\n",
        "kept = None\n",
        ASSIGNORS,
    ),
    consumer(
        "uniform moves nothing",
        "assignors.py",
        "elif loads[donor] - loads[receiver] <= 1:",
        "elif True:",
    ),
    consumer("range forgets the rest", "assignors.py", " + (position < longer)", ""),
)
