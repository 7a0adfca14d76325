"""Least privilege at the stores: the whole system with one user per role in etcd and one key per role at S3.

Laws: with the rights of the table, and no more, everything works: clients, groups, admin calls, logins, a crash and a
handover, settling, retention, compaction, lag and the operator's commands. With the rights of a version that had no
transactions, all but transactions works. No process sends S3 a request outside of
its policy, and each action of a policy is used. Front doors and coordinators send none. No log has a password.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from kafscale.storage.history.witness import history_prefix
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import FOR_TRANSACTIONS, read_for_transactions
from kafscale.storage.rights.objects import Action, Grant, grants_of
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
MANY = 16
"""So many that two instances share them."""
KEYED = 0
"""A partition to which some of the keys belong: CRC-32 of the key, modulo the partitions."""
UNSEEN = {(Role.ADMIN, Action.GET)}
"""Rights that no request shows: S3 wants GetObject for a DELETE with an ETag."""
SELDOM = {(Role.ADMIN, Grant(Action.PUT, history_prefix(KEYS)))}
"""Any of the three roles that know etcd's history makes the witness of a minute."""
WORK_S = 180.0
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
    "internal.segment.bytes": "8192",
}
SHORT = {"retention.bytes": "3000", "internal.segment.bytes": "8192"}
REFUSALS = ("permission denied", "credentials or permissions", "AccessDenied", "invalid user ID or password")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    require_weed()
    with Guarded.opened(tmp_path, PARTITIONS, SETTINGS) as guarded:
        yield guarded


def test_everything_works_with_one_identity_per_role(guarded: Guarded) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap, "log_level": 0})
    create_topics(admin)
    no_transaction_with_older_rights(guarded)
    records_and_groups(guarded, admin)
    a_transaction(guarded)
    admin_calls(guarded, admin)
    configs_of_groups(guarded)
    a_user_logs_in(guarded)
    a_crash_and_a_handover(guarded)
    retention_compaction_and_lag(guarded)
    operators_commands(guarded)
    assert guarded.logged(*REFUSALS) == []
    assert guarded.logged(SECRET) == []
    for role in Role:
        grants, sent = grants_of(KEYS, role), guarded.sent(role)
        outside = [each for each in sent if not any(grant.allows(*each) for grant in grants)]
        assert outside == [], f"{role} sent what its policy does not allow"
        unused = [grant for grant in grants if not any(grant.allows(*each) for each in sent)]
        unused = [grant for grant in unused if (role, grant.action) not in UNSEEN]
        unused = [grant for grant in unused if (role, grant) not in SELDOM]
        assert unused == [], f"{role} needs no such right"


def create_topics(admin: AdminClient) -> None:
    topics = [
        NewTopic("orders", MANY),
        NewTopic("state", PARTITIONS, config=COMPACTED),
        NewTopic("short", PARTITIONS, config=SHORT),
        NewTopic("gone", PARTITIONS),
        NewTopic("paid", PARTITIONS),
    ]
    for created in admin.create_topics(topics).values():
        created.result(ANSWER_S)


def no_transaction_with_older_rights(guarded: Guarded) -> None:
    """Services of this version were started before `etcd-roles --apply` of this version."""
    guarded.revoke({role: read_for_transactions(KEYS, role) for role in FOR_TRANSACTIONS})
    guarded.restart(*FOR_TRANSACTIONS)
    write(guarded, "gone", 20, idempotent=True)
    consumed(guarded, "gone", "early", 20)
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "transactional.id": "early", "log_level": 0})
    with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        producer.init_transactions(ANSWER_S)
    assert len(guarded.logged("transactions off")) == len(FOR_TRANSACTIONS)
    guarded.apply_rights()
    guarded.restart(*FOR_TRANSACTIONS)


def a_transaction(guarded: Guarded) -> None:
    """With records and offsets: an owner asks the coordinator, which ends it at the owners and at the group."""
    producer = Producer(
        {"bootstrap.servers": guarded.bootstrap, "transactional.id": "payments", "log_level": 0}
    )
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("paid", b"paid", partition=partition)
    reader = Consumer({"bootstrap.servers": guarded.bootstrap, "group.id": "payers", "log_level": 0})
    offset = TopicPartition("orders", 0, 1)
    producer.send_offsets_to_transaction([offset], reader.consumer_group_metadata(), ANSWER_S)
    producer.commit_transaction(ANSWER_S)
    until(
        "its offsets are the group's",
        lambda: [each.offset for each in reader.committed([TopicPartition("orders", 0)], ANSWER_S)] == [1],
    )
    reader.close()
    consumed(guarded, "paid", "auditors", PARTITIONS, **{"isolation.level": "read_committed"})


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


def records_and_groups(guarded: Guarded, admin: AdminClient) -> None:
    write(guarded, "orders", 300, idempotent=True)
    consumed(guarded, "orders", "lasting", 300)  # lag has something to sample
    consumed(guarded, "orders", "classic", 300)
    consumed(guarded, "orders", "modern", 300, **{"group.protocol": "consumer"})
    place = TopicPartition("orders", KEYED, 1)
    for altered in admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions("classic", [place])]
    ).values():
        altered.result(ANSWER_S)
    for deleted in admin.delete_consumer_groups(["classic", "modern"]).values():
        deleted.result(ANSWER_S)


def admin_calls(guarded: Guarded, admin: AdminClient) -> None:
    changed = ConfigResource(
        ResourceType.TOPIC, "orders", incremental_configs=[set_to("internal.segment.bytes", "8192")]
    )
    admin.incremental_alter_configs([changed])[changed].result(ANSWER_S)
    for deleted in admin.delete_records([TopicPartition("orders", KEYED, 1)]).values():
        deleted.result(ANSWER_S)
    write(guarded, "gone", 20)
    guarded.command("settle", "gone")  # so that the topic has objects of its own, which admin deletes
    admin.delete_topics(["gone"])["gone"].result(ANSWER_S)
    until("the topic is free", lambda: "gone" not in admin.list_topics(timeout=ANSWER_S).topics)
    assert has_sent(guarded, Role.ADMIN, Action.PUT, "@kafscale/deleted/")


def set_to(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def configs_of_groups(guarded: Guarded) -> None:
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


def a_user_logs_in(guarded: Guarded) -> None:
    """Admin writes the user. A front door with logins has drawn the key of unknown users, or it would not be ready."""
    secret = guarded.passwords / Role.OPERATOR
    guarded.command(
        "users", "add", "alice", "--password-file", str(secret), "--bootstrap-server", guarded.bootstrap
    )
    alice = AdminClient(
        {
            "bootstrap.servers": guarded.with_logins,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": secret.read_text().strip(),
            "log_level": 0,
        }
    )
    assert "orders" in alice.list_topics(timeout=ANSWER_S).topics


def a_crash_and_a_handover(guarded: Guarded) -> None:
    load = Load(guarded.bootstrap, "orders", MANY, History())
    load.start("writer", idempotent=True)
    until("records are acknowledged", lambda: len(load.going_on()) == MANY)
    second = guarded.add(Role.PRODUCE)
    until("both own partitions", lambda: len(set(guarded.inside().owners("orders").values())) == 2)
    assert second.stop() == 0
    guarded.add(Role.PRODUCE)
    guarded.deployment.services[Role.PRODUCE].kill()
    before = sum(load.going_on().values())
    until("the next owner serves", lambda: sum(load.going_on().values()) > before + 200)
    load.stop()
    assert load.errors == []
    read = read_everything(guarded.bootstrap, "orders", MANY)
    assert sum(map(len, read.values())) >= load.acknowledged()


def has_sent(guarded: Guarded, role: Role, action: Action, folder: str) -> bool:
    start = f"{KEYS.namespace}/{folder}"
    return any(sent is action and key.startswith(start) for sent, key in guarded.sent(role))


def retention_compaction_and_lag(guarded: Guarded) -> None:
    consumed(guarded, "orders", "lagging", 100)  # without a group there is no sample of lag
    for role, action, folder in (
        (Role.UPKEEP, Action.DELETE, "short/"),
        (Role.UPKEEP, Action.PUT, "@kafscale/compacted/"),
        (Role.UPKEEP, Action.DELETE, "state/"),
        (Role.UPKEEP, Action.PUT, "@kafscale/lag/"),
        (Role.PRODUCE, Action.DELETE, "@kafscale/bundle/"),
        (Role.PRODUCE, Action.DELETE, "@kafscale/producers/"),
    ):

        def done(role: Role = role, action: Action = action, folder: str = folder) -> bool:
            write(guarded, "short", 60, idempotent=True)
            write(guarded, "state", 60)
            return has_sent(guarded, role, action, folder)

        until(f"{role} has sent {action.value} below {folder}", done, WORK_S)


def operators_commands(guarded: Guarded) -> None:
    write(guarded, "orders", 50)
    picture = json.loads(guarded.command("status", "--output", "json"))
    assert {row["service"] for row in picture["instances"]} >= {"frontdoor", "produce", "upkeep"}
    guarded.command("settle")
    guarded.command("fsck")
    guarded.command("lag", "--output", "json")
    segment = next(
        key
        for action, key in sorted(guarded.sent(Role.PRODUCE), key=str)
        if action is Action.PUT and key.startswith(f"{KEYS.namespace}/orders/") and key.endswith(".kfs")
    )
    guarded.command("dump", f"s3://{BUCKET}/{segment}")
