"""The stored value of a consumer group as coordinators wrote it before members had keys. Today's only read it."""

from __future__ import annotations

from kafscale.storage.groups import ConsumerGroup, GroupRecord, GroupState, encode_group, partitions_to_pb
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2 as pb


def encode_old_group(group: GroupRecord | GroupState) -> bytes:
    """Other groups than those with a `ConsumerGroup` are encoded as today."""
    if not isinstance(group.state, ConsumerGroup):
        return encode_group(
            GroupRecord(group=group.group, state=group.state, empty_since_ms=group.empty_since_ms)
        )
    message = pb.GroupState(
        schema=SCHEMA,
        group=group.group,
        empty_since_ms=group.empty_since_ms,
        consumer=_consumer_to_pb(group.state),
    )
    return message.SerializeToString(deterministic=True)


def _consumer_to_pb(group: ConsumerGroup) -> pb.ConsumerGroup:
    message = pb.ConsumerGroup(
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        metadata_hash=group.metadata_hash,
    )
    for target in group.target:
        message.target.add(member_id=target.member_id, partitions=partitions_to_pb(target.partitions))
    for member in group.members:
        message.members.add(
            id=member.id,
            instance_id=member.instance_id,
            rack=member.rack,
            client_id=member.client_id,
            client_host=member.client_host,
            member_epoch=member.member_epoch,
            previous_epoch=member.previous_epoch,
            state=member.state.value,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            subscribed=member.subscribed,
            regex=member.regex,
            assignor=member.assignor,
            assigned=partitions_to_pb(member.assigned),
            pending_revocation=partitions_to_pb(member.pending_revocation),
        )
    return message
