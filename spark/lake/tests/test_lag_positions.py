"""A group's partitions are all of its topics', with and without a committed offset; without one, all that is stored is
unread, and nothing is lost or judged."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kafscale.lake.catalog import Log, read_lake
from kafscale.lake.lag.positions import Commit, Position, positions
from kafscale.lake.lag.rates import rates
from kafscale.lake.lag.sampler import read_facts
from kafscale.lake.lag.samples import sample
from kafscale.lake.lag.status import judge
from kafscale.lake.unknown import UnknownGroup
from kafscale.storage.groups import (
    ClassicGroup,
    ClassicMember,
    ClassicProtocol,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    GroupRecord,
    GroupState,
    TopicPartitions,
    encode_committed,
    encode_group,
)
from kafscale.storage.keys import TopicId
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import records

from .lag_world import subscription
from .shop import Shop

ORDERS = Topic(name="orders", topic_id=TopicId(b"1" * 16), partitions=3)
PAYMENTS = Topic(name="payments", topic_id=TopicId(b"2" * 16), partitions=2)
T0 = 1_700_000_000_000
NOW = T0 + 100_000


def commit(partition: int, topic: str = "orders", group: str = "g") -> Commit:
    return Commit(
        group=group, topic=topic, partition=partition, offset=CommittedOffset(offset=5, commit_ms=1)
    )


def subscriber(*topics: str) -> ClassicGroup:
    protocol = ClassicProtocol(name="range", metadata=subscription(*topics))
    member = ClassicMember(id="m", session_timeout_ms=1, rebalance_timeout_ms=1, protocols=(protocol,))
    return ClassicGroup(protocol_type="consumer", generation=1, members=(member,))


def places(
    *commits: Commit, groups: dict[str, ClassicGroup | ConsumerGroup] | None = None
) -> list[tuple[str, str, int, bool]]:
    states = {name: GroupState(group=name, state=state) for name, state in (groups or {}).items()}
    found = positions(commits, states, [ORDERS, PAYMENTS])
    return [(each.group, each.topic, each.partition, each.offset is not None) for each in found]


def test_a_topic_with_one_commit_has_all_its_partitions() -> None:
    assert places(commit(1)) == [
        ("g", "orders", 0, False),
        ("g", "orders", 1, True),
        ("g", "orders", 2, False),
    ]


def test_a_subscribed_topic_counts_before_the_first_commit() -> None:
    found = places(
        commit(0, "payments"), groups={"g": subscriber("orders", "gone"), "h": subscriber("payments")}
    )
    assert found == [
        *(("g", "orders", partition, False) for partition in range(3)),
        ("g", "payments", 0, True),
        ("g", "payments", 1, False),
        *(("h", "payments", partition, False) for partition in range(2)),
    ]


def test_a_topic_that_a_regular_expression_matches_counts_once_a_member_owns_a_partition() -> None:
    assigned = (TopicPartitions(topic_id=PAYMENTS.topic_id, partitions=(1,)),)
    member = ConsumerMember(
        id="m",
        member_epoch=1,
        previous_epoch=0,
        state=ConsumerMemberState.STABLE,
        rebalance_timeout_ms=1,
        regex="pay.*",
        assigned=assigned,
    )
    group = ConsumerGroup(group_epoch=1, assignment_epoch=1, members=(member,))
    assert places(groups={"g": group}) == [("g", "payments", 0, False), ("g", "payments", 1, False)]


# -- measured, over etcd and a store --------------------------------------------------------------------------------


async def shop_of_two_readers() -> Shop:
    """A log of thirty records, one a second from T0 on, of which the first ten are deleted. One group has committed 5,
    another subscribes and has committed nothing."""
    shop = Shop()
    log = await shop.topic("orders", retention_ms="1000000")
    for number in range(3):
        await log.append(records(10, timestamp=T0 + 10_000 * number, step_ms=1_000))
    await log.retain_from(10, delete=False)
    key = shop.keys.committed(slot_of("reader"), "reader", log.topic.topic_id, 0)
    await shop.etcd.put(key, encode_committed(CommittedOffset(offset=5, commit_ms=T0)))
    state = GroupRecord(group="new", state=subscriber("orders"))
    await shop.etcd.put(shop.keys.group(slot_of("new"), "new"), encode_group(state))
    return shop


async def test_without_a_commit_all_that_is_stored_is_unread_and_nothing_is_lost() -> None:
    facts = await read_facts((await shop_of_two_readers()).lake(), NOW)
    new, reader = facts.lags
    assert (new.group, new.committed, new.records, new.lost) == ("new", None, 20, 0)
    assert (reader.group, reader.committed, reader.records, reader.lost) == ("reader", 5, 20, 5)
    same = (new.bytes, new.time_ms, new.expires_in_ms)
    assert same == (reader.bytes, reader.time_ms, reader.expires_in_ms) == (reader.bytes, 90_000, 919_000)


async def test_the_report_is_the_same_with_outlines_as_over_all_segments() -> None:
    lake = (await shop_of_two_readers()).lake()
    (log,) = await read_lake(lake)
    (found,) = (await read_facts(lake, NOW)).logs
    assert sum(seg.size for seg in found.segments) == sum(seg.size for seg in log.segments)


async def test_a_group_that_does_not_exist_is_an_error() -> None:
    lake = (await shop_of_two_readers()).lake()
    with pytest.raises(UnknownGroup, match="group 'reeder' does not exist"):
        await read_facts(lake, NOW, chosen={"new", "reeder"})
    assert {lag.group for lag in (await read_facts(lake, NOW, chosen={"new"})).lags} == {"new"}


async def test_history_has_positions_without_a_commit_and_nothing_judges_them() -> None:
    facts = await read_facts((await shop_of_two_readers()).lake(), NOW)
    samples = pa.concat_tables(
        [sample(facts.logs, facts.positions, {}, NOW - ago_ms) for ago_ms in (600_000, 300_000, 0)]
    )
    rows = [row for row in samples.to_pylist() if row["group_id"] == "new"]
    assert [(row["committed"], row["commit_ts"], row["lag"]) for row in rows] == [(None, None, 20)] * 3
    assert set(judge(samples, NOW)) == {("reader", "orders", 0)}
    assert rates(samples, facts.lags, NOW)["new", "orders", 0].consumed is None


def test_a_position_is_judged_by_its_commits_alone() -> None:
    """What was sampled before the first commit is no commit."""
    log, place = Log(topic=ORDERS, partition=0, end=100), ("g", "orders", 0)
    moments = [(400_000, None), (300_000, None), (200_000, 5), (100_000, 9)]
    tables = []
    for ago_ms, offset in moments:
        committed = None if offset is None else CommittedOffset(offset=offset, commit_ms=NOW - ago_ms)
        position = Position(group="g", topic="orders", partition=0, offset=committed)
        tables.append(sample([log], [position], {}, NOW - ago_ms))
    assert judge(pa.concat_tables(tables), NOW)[place].complete == 0.2
