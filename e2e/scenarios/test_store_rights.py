"""Least privilege at the stores: the whole system with one user per role in etcd and one key per role at S3.

Laws: with the rights of the table, and no more, everything works: clients, groups, admin calls, a crash and a
handover, settling, retention, compaction, lag and the operator's commands. No process sends S3 a request outside of
its policy, and each action of a policy is used. Front doors and coordinators send none. No log has a password.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from kafscale.storage.rights.objects import PROBE_PREFIX, Action, grants_of
from kafscale.storage.rights.roles import Role
from kafscale.testkit.seaweed import BUCKET, require_weed
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import incremental_alter_configs

from e2e.checkers.history import History
from e2e.harness.bundles import BUNDLES
from e2e.harness.guarded import KEYS, SECRET, Guarded
from e2e.harness.load import Load, read_everything
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.services import until

PARTITIONS = 3
ANSWER_S = 60.0
GROUP_KIND = 32
SETTINGS = {
    **BUNDLES,
    "KAFSCALE_RETENTION_EVERY_MS": "1000",
    "KAFSCALE_RETENTION_GRACE_MS": "300",
    "KAFSCALE_ORPHANS_EVERY_MS": "2000",
    "KAFSCALE_COMPACTION_EVERY_MS": "1000",
    "KAFSCALE_COMPACTION_GRACE_MS": "300",
    "KAFSCALE_LAG_EVERY_MS": "1000",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
    "segment.bytes": "8192",
}
SHORT = {"retention.bytes": "3000", "segment.bytes": "8192"}
REFUSALS = ("permission denied", "credentials or permissions", "AccessDenied", "invalid user ID or password")
DAMAGE = ('"level":"error"', '"level": "error"', "Traceback")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    require_weed()
    with Guarded.opened(tmp_path_factory.mktemp("rights"), PARTITIONS, SETTINGS) as guarded:
        yield guarded


@pytest.fixture(scope="module")
def admin(guarded: Guarded) -> AdminClient:
    client = AdminClient({"bootstrap.servers": guarded.bootstrap, "log_level": 0})
    topics = {"orders": {}, "state": COMPACTED, "short": SHORT, "gone": {}}
    for future in client.create_topics(
        [NewTopic(name, PARTITIONS, config=config) for name, config in topics.items()]
    ).values():
        future.result(ANSWER_S)
    return client


def write(guarded: Guarded, topic: str, count: int, *, idempotent: bool = False) -> None:
    producer = Producer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "log_level": 0,
        }
    )
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"." * 200, b"key-%d" % (number % 20))
        if number % 50 == 0:
            producer.flush(ANSWER_S)
    assert producer.flush(ANSWER_S) == 0


def consumed(guarded: Guarded, topic: str, group: str, count: int, **config: Any) -> None:
    """Reads as a member of a group, and commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **config,
        }
    )
    consumer.subscribe([topic])
    try:
        deadline, read = time.monotonic() + ANSWER_S, 0
        while read < count:
            assert time.monotonic() < deadline, f"{group} has read {read} of {count} records"
            for message in consumer.consume(500, timeout=0.5):
                assert message.error() is None, message.error()
                read += 1
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def test_records_groups_and_admin_calls(guarded: Guarded, admin: AdminClient) -> None:
    write(guarded, "orders", 300, idempotent=True)
    write(guarded, "gone", 20)
    consumed(guarded, "orders", "classic", 300)
    consumed(guarded, "orders", "modern", 300, **{"group.protocol": "consumer"})
    place = TopicPartition("orders", 0, 1)
    (altered,) = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("classic", [place])]
    ).values()
    altered.result(ANSWER_S)
    of_topic = ConfigResource(
        ResourceType.TOPIC, "orders", incremental_configs=[set_to("segment.bytes", "8192")]
    )
    admin.incremental_alter_configs([of_topic])[of_topic].result(ANSWER_S)
    admin.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")])
    (deleted,) = admin.delete_records([TopicPartition("orders", 1, 1)]).values()
    deleted.result(ANSWER_S)
    for group in ("classic", "modern"):
        admin.delete_consumer_groups([group])[group].result(ANSWER_S)
    admin.delete_topics(["gone"])["gone"].result(ANSWER_S)
    until(
        "the admin has deleted the topic's objects",
        lambda: any(
            action is Action.DELETE and not key.startswith(PROBE_PREFIX)
            for action, key in guarded.seen[Role.ADMIN]
        ),
    )


def set_to(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def test_configs_of_groups(guarded: Guarded, admin: AdminClient) -> None:
    """librdkafka cannot alter them."""
    timeout = incremental_alter_configs.IncrementalAlterConfigsRequestAlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value="50000"
    )
    group = incremental_alter_configs.IncrementalAlterConfigsRequestResource(
        resource_type=GROUP_KIND, resource_name="modern", configs=[timeout]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[group], validate_only=False)
    with Raw.to(guarded.bootstrap) as raw:
        (answer,) = ask(raw, incremental_alter_configs, 1, request).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def test_a_crash_and_a_handover_lose_nothing(guarded: Guarded, admin: AdminClient) -> None:
    load = Load(guarded.bootstrap, "orders", PARTITIONS, History())
    load.start("writer", idempotent=True)
    until("records are acknowledged", lambda: len(load.going_on()) == PARTITIONS)
    second = guarded.add(Role.PRODUCE)
    until(
        "the second instance owns a partition",
        lambda: len(set(guarded.inside().owners("orders").values())) == 2,
    )
    assert second.stop() == 0
    guarded.add(Role.PRODUCE)
    guarded.deployment.services[Role.PRODUCE].kill()
    before = sum(load.going_on().values())
    until("the next owner serves", lambda: sum(load.going_on().values()) > before + 200)
    load.stop()
    assert load.errors == []
    read = read_everything(guarded.bootstrap, "orders", PARTITIONS)
    assert sum(map(len, read.values())) >= load.acknowledged()


def upkeep_has(guarded: Guarded, action: Action, folder: str) -> bool:
    return any(
        done is action and key.startswith(f"{KEYS.namespace}/{folder}")
        for done, key in guarded.seen[Role.UPKEEP]
    )


def test_retention_compaction_and_lag(guarded: Guarded, admin: AdminClient) -> None:
    def works(action: Action, folder: str) -> None:
        def done() -> bool:
            write(guarded, "short", 60)
            write(guarded, "state", 60)
            return upkeep_has(guarded, action, folder)

        until(f"upkeep has sent {action.value} below {folder}", done)

    works(Action.DELETE, "short/")
    works(Action.PUT, "@kafscale/compacted/")
    works(Action.DELETE, "state/")
    works(Action.PUT, "@kafscale/lag/")
    until("an owner has deleted a bundle", lambda: sent_by_produce(guarded, "@kafscale/bundle/"))


def sent_by_produce(guarded: Guarded, folder: str) -> bool:
    start = f"{KEYS.namespace}/{folder}"
    return any(
        action is Action.DELETE and key.startswith(start) for action, key in guarded.seen[Role.PRODUCE]
    )


def test_the_operators_commands(guarded: Guarded, admin: AdminClient) -> None:
    write(guarded, "orders", 50)
    picture = json.loads(guarded.command("status", "--output", "json"))
    assert {row["role"] for row in picture["instances"]} >= {"frontdoor", "produce", "upkeep"}
    guarded.command("settle")
    guarded.command("fsck")
    guarded.command("lag", "--output", "json")
    segment = next(
        key
        for action, key in sorted(guarded.seen[Role.PRODUCE], key=str)
        if key.endswith(".kfs") and "orders" in key
    )
    guarded.command("dump", f"s3://{BUCKET}/{segment}")


def test_no_process_was_refused_and_no_log_has_a_password(guarded: Guarded, admin: AdminClient) -> None:
    """The last but one: it looks at what the others did."""
    assert guarded.logged(*REFUSALS) == []
    assert guarded.logged(*DAMAGE) == []
    assert guarded.logged(SECRET) == []


def test_each_process_stays_within_its_policy_and_uses_each_action_of_it(
    guarded: Guarded, admin: AdminClient
) -> None:
    for role, seen in guarded.seen.items():
        grants = grants_of(KEYS, role)
        outside = [
            (action, key) for action, key in seen if not any(grant.allows(action, key) for grant in grants)
        ]
        assert outside == [], f"{role} sent what its policy does not allow"
        unused = [grant for grant in grants if not any(grant.allows(*operation) for operation in seen)]
        assert unused == [], f"{role} never needs this"
