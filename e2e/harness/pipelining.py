"""Pairs of requests of which the second reads what the first writes, and what its answer must say then.

A pair speaks of a topic, a group or a user of its own, so that each trial is the first of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    fetch,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)

from e2e.harness.raw import Raw, body_of, framed
from e2e.harness.requests import batch

EARLIEST, LATEST = -2, -1
HELD = 3
"""Records in the topic before the pair."""
TOPIC_RESOURCE, LITERAL, READ, WRITE, DENY, ANY = 2, 3, 3, 4, 2, 1
ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what its answer says, without the names of the trial."""

    schema: ModuleType
    version: int
    message: Any
    says: Callable[[Any], object]

    def body(self) -> bytes:
        return b"".join(self.schema.encode_request(self.message, self.version))

    def read(self, frame: bytes, correlation_id: int) -> object:
        body = body_of(frame, self.schema.API_KEY, self.version, correlation_id)
        return self.says(self.schema.decode_response(body, self.version))


@dataclass(frozen=True, slots=True)
class Pair:
    """`before`: what is there when the pair is sent. `answers`: what the two answers say if each sees the other's."""

    name: str
    before: Sequence[Callable[[str], Asked]]
    first: Callable[[str], Asked]
    second: Callable[[str], Asked]
    answers: tuple[object, object]


def ask(raw: Raw, asked: Asked) -> object:
    number = raw.request(asked.schema.API_KEY, asked.version, [asked.body()])
    return asked.read(raw.answer(), number)


def one_by_one(raw: Raw, pair: Pair, name: str) -> tuple[object, object]:
    return ask(raw, pair.first(name)), ask(raw, pair.second(name))


def in_one_write(raw: Raw, pair: Pair, name: str) -> tuple[object, object]:
    both = (pair.first(name), pair.second(name))
    sent, out = [], b""
    for asked in both:
        raw.correlation_id += 1
        sent.append(raw.correlation_id)
        header = encode_request_header(asked.schema.API_KEY, asked.version, raw.correlation_id, "raw")
        out += framed(header + asked.body())
    raw.send(out)
    one, other = (asked.read(raw.answer(), number) for asked, number in zip(both, sent, strict=True))
    return one, other


# -- requests


def created(name: str) -> Asked:
    topic = create_topics.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    message = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    return Asked(create_topics, 5, message, lambda answer: answer.topics[0].error_code)


def deleted_topic(name: str) -> Asked:
    message = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    return Asked(delete_topics, 4, message, lambda answer: answer.responses[0].error_code)


def grown(name: str) -> Asked:
    topic = create_partitions.CreatePartitionsRequestTopic(name=name, count=3, assignments=None)
    message = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)
    return Asked(create_partitions, 2, message, lambda answer: answer.results[0].error_code)


def described(name: str) -> Asked:
    wanted = [metadata.MetadataRequestTopic(name=name)]
    message = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return Asked(
        metadata, 9, message, lambda answer: (answer.topics[0].error_code, len(answer.topics[0].partitions))
    )


def produced(name: str, count: int = 1) -> Asked:
    part = produce.ProduceRequestPartition(index=0, records=batch(count))
    topic = produce.ProduceRequestTopic(name=name, partition_data=[part])
    message = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])

    def says(answer: produce.ProduceResponse) -> object:
        done = answer.responses[0].partition_responses[0]
        return done.error_code, done.base_offset

    return Asked(produce, 9, message, says)


def held(name: str) -> Asked:
    return produced(name, HELD)


def offset_at(name: str, timestamp: int) -> Asked:
    part = list_offsets.ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
    topic = list_offsets.ListOffsetsRequestTopic(name=name, partitions=[part])
    message = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])

    def says(answer: list_offsets.ListOffsetsResponse) -> object:
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset

    return Asked(list_offsets, 7, message, says)


def latest(name: str) -> Asked:
    return offset_at(name, LATEST)


def earliest(name: str) -> Asked:
    return offset_at(name, EARLIEST)


def end_of_epoch(name: str) -> Asked:
    """Of the first epoch of a partition, which goes on while its owner stays."""
    part = offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(partition=0, leader_epoch=1)
    topic = offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic(topic=name, partitions=[part])
    message = offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])
    return Asked(
        offset_for_leader_epoch, 3, message, lambda answer: answer.topics[0].partitions[0].end_offset
    )


def fetched(name: str, offset: int) -> Asked:
    """Without a wait: the error, the high watermark, and whether there are records."""
    part = fetch.FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    message = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[fetch.FetchRequestTopic(topic=name, partitions=[part])],
    )

    def says(answer: fetch.FetchResponse) -> object:
        found = answer.responses[0].partitions[0]
        return found.error_code, len(found.records or b"") > 0

    return Asked(fetch, 12, message, says)


def cut(name: str, offset: int) -> Asked:
    part = delete_records.DeleteRecordsRequestPartition(0, offset)
    topic = delete_records.DeleteRecordsRequestTopic(name, [part])
    message = delete_records.DeleteRecordsRequest([topic], 30_000)

    def says(answer: delete_records.DeleteRecordsResponse) -> object:
        done = answer.topics[0].partitions[0]
        return done.error_code, done.low_watermark

    return Asked(delete_records, 2, message, says)


def configured(name: str) -> Asked:
    entry = incremental_alter_configs.IncrementalAlterConfigsRequestAlterableConfig(
        "retention.ms", 0, "61000"
    )
    resource = incremental_alter_configs.IncrementalAlterConfigsRequestResource(TOPIC_RESOURCE, name, [entry])
    message = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    return Asked(incremental_alter_configs, 1, message, lambda answer: answer.responses[0].error_code)


def config_of(name: str) -> Asked:
    resource = describe_configs.DescribeConfigsRequestResource(TOPIC_RESOURCE, name, ["retention.ms"])
    message = describe_configs.DescribeConfigsRequest(resources=[resource])
    return Asked(describe_configs, 4, message, lambda answer: answer.results[0].configs[0].value)


def committed(name: str) -> Asked:
    """The group has the name of the topic."""
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=2)
    topic = offset_commit.OffsetCommitRequestTopic(name=name, partitions=[part])
    message = offset_commit.OffsetCommitRequest(group_id=name, topics=[topic])
    return Asked(offset_commit, 8, message, lambda answer: answer.topics[0].partitions[0].error_code)


def offset_of(name: str) -> Asked:
    topic = offset_fetch.OffsetFetchRequestTopic(name, [0])
    message = offset_fetch.OffsetFetchRequest(group_id=name, topics=[topic])
    return Asked(offset_fetch, 7, message, lambda answer: answer.topics[0].partitions[0].committed_offset)


def offset_gone(name: str) -> Asked:
    topic = offset_delete.OffsetDeleteRequestTopic(name, [offset_delete.OffsetDeleteRequestPartition(0)])
    message = offset_delete.OffsetDeleteRequest(group_id=name, topics=[topic])
    return Asked(offset_delete, 0, message, lambda answer: answer.topics[0].partitions[0].error_code)


def group_gone(name: str) -> Asked:
    message = delete_groups.DeleteGroupsRequest(groups_names=[name])
    return Asked(delete_groups, 2, message, lambda answer: answer.results[0].error_code)


def is_listed(name: str) -> Asked:
    return Asked(
        list_groups,
        4,
        list_groups.ListGroupsRequest(),
        lambda answer: any(one.group_id == name for one in answer.groups),
    )


def denied(name: str) -> Asked:
    """Nobody may write to the topic any more."""
    acl = create_acls.CreateAclsRequestAclCreation(TOPIC_RESOURCE, name, LITERAL, ANONYMOUS, "*", WRITE, DENY)
    message = create_acls.CreateAclsRequest(creations=[acl])
    return Asked(create_acls, 3, message, lambda answer: answer.results[0].error_code)


def allowed(name: str) -> Asked:
    """Takes back what `denied` has said."""
    said = delete_acls.DeleteAclsRequestFilter(TOPIC_RESOURCE, name, LITERAL, None, None, ANY, ANY)
    message = delete_acls.DeleteAclsRequest(filters=[said])
    return Asked(delete_acls, 3, message, lambda answer: len(answer.filter_results[0].matching_acls))


def acls_of(name: str) -> Asked:
    message = describe_acls.DescribeAclsRequest(TOPIC_RESOURCE, name, LITERAL, None, None, ANY, ANY)
    return Asked(describe_acls, 3, message, lambda answer: len(answer.resources))


def quota_set(name: str) -> Asked:
    entity = alter_client_quotas.AlterClientQuotasRequestEntity("user", name)
    entry = alter_client_quotas.AlterClientQuotasRequestEntry(
        [entity], [alter_client_quotas.AlterClientQuotasRequestOp("producer_byte_rate", 1e12)]
    )
    message = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    return Asked(alter_client_quotas, 1, message, lambda answer: answer.entries[0].error_code)


def quota_of(name: str) -> Asked:
    component = describe_client_quotas.DescribeClientQuotasRequestComponent("user", 0, name)
    message = describe_client_quotas.DescribeClientQuotasRequest(components=[component])
    return Asked(
        describe_client_quotas,
        1,
        message,
        lambda answer: [value.value for entry in answer.entries or () for value in entry.values],
    )


def password_set(name: str) -> Asked:
    credential = alter_user_scram_credentials.AlterUserScramCredentialsRequestCredentialUpsertion(
        name=name, mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"of no password"
    )
    message = alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[credential])
    return Asked(alter_user_scram_credentials, 0, message, lambda answer: answer.results[0].error_code)


def password_of(name: str) -> Asked:
    user = describe_user_scram_credentials.DescribeUserScramCredentialsRequestName(name)
    message = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=[user])
    return Asked(
        describe_user_scram_credentials, 0, message, lambda answer: len(answer.results[0].credential_infos)
    )


# -- pairs

OUT_OF_RANGE, UNKNOWN_TOPIC, DENIED_TOPIC = 1, 3, 29
TOPIC = (created,)
FULL = (created, held)
COMMITTED = (created, committed)

PAIRS = (
    Pair("Produce, ListOffsets", TOPIC, held, latest, ((0, 0), (0, HELD))),
    Pair("Produce, Fetch", TOPIC, held, lambda name: fetched(name, 0), ((0, 0), (0, True))),
    Pair("Produce, OffsetForLeaderEpoch", FULL, produced, end_of_epoch, ((0, HELD), HELD + 1)),
    Pair(
        "Produce, DeleteRecords",
        FULL,
        produced,
        lambda name: cut(name, -1),
        ((0, HELD), (0, HELD + 1)),
    ),
    Pair("DeleteRecords, ListOffsets", FULL, lambda name: cut(name, 2), earliest, ((0, 2), (0, 2))),
    Pair(
        "DeleteRecords, Fetch",
        FULL,
        lambda name: cut(name, 2),
        lambda name: fetched(name, 0),
        ((0, 2), (OUT_OF_RANGE, False)),
    ),
    Pair("DeleteRecords, Produce", FULL, lambda name: cut(name, -1), produced, ((0, HELD), (0, HELD))),
    Pair("CreateTopics, Metadata", (), created, described, (0, (0, 1))),
    Pair("CreateTopics, Produce", (), created, produced, (0, (0, 0))),
    Pair("DeleteTopics, Metadata", TOPIC, deleted_topic, described, (0, (UNKNOWN_TOPIC, 0))),
    Pair("DeleteTopics, Produce", TOPIC, deleted_topic, produced, (0, (UNKNOWN_TOPIC, -1))),
    Pair("Produce, DeleteTopics", TOPIC, produced, deleted_topic, ((0, 0), 0)),
    Pair("CreatePartitions, Metadata", TOPIC, grown, described, (0, (0, 3))),
    Pair("IncrementalAlterConfigs, DescribeConfigs", TOPIC, configured, config_of, (0, "61000")),
    Pair("OffsetCommit, OffsetFetch", TOPIC, committed, offset_of, (0, 2)),
    Pair("OffsetCommit, ListGroups", TOPIC, committed, is_listed, (0, True)),
    Pair("OffsetDelete, OffsetFetch", COMMITTED, offset_gone, offset_of, (0, -1)),
    Pair("OffsetDelete, OffsetCommit", COMMITTED, offset_gone, committed, (0, 0)),
    Pair("DeleteGroups, ListGroups", COMMITTED, group_gone, is_listed, (0, False)),
    Pair("CreateAcls, DescribeAcls", TOPIC, denied, acls_of, (0, 1)),
    Pair("CreateAcls, Produce", TOPIC, denied, produced, (0, (DENIED_TOPIC, -1))),
    Pair("DeleteAcls, DescribeAcls", (created, denied), allowed, acls_of, (1, 0)),
    Pair("DeleteAcls, Produce", (created, denied), allowed, produced, (1, (0, 0))),
    Pair("AlterClientQuotas, DescribeClientQuotas", (), quota_set, quota_of, (0, [1e12])),
    Pair("AlterUserScramCredentials, DescribeUserScramCredentials", (), password_set, password_of, (0, 1)),
)
