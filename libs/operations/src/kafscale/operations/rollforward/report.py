"""What a plan does, for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kafscale.operations.consent import Row
from kafscale.operations.rollforward.plan import PartitionPlan
from kafscale.operations.rollforward.topics import Bucket, Metadata, Plan, TopicChange
from kafscale.operations.sentences import counted
from kafscale.storage.topics import Topic

COLUMNS: Final = ("topic", "partition", "change", "log_start", "end", "records", "unsettled", "epoch")
SHOWN_MAX: Final = 20


def rows(metadata: Metadata, plan: Plan, history: str | None = None) -> list[Row]:
    """One for each value that is written or removed: records of topics, leader epochs of names, heads; one for all
    transactional ids, and one for the new history if `history` says that etcd went back."""
    return [
        *([] if history is None else [_row(change="new history of etcd")]),
        *_forgotten(metadata),
        *(_topic_row(change) for change in plan.topics),
        *(_row(topic=name, change="epoch kept", epoch=epoch) for name, epoch in plan.floors.items()),
        *(_partition_row(each) for each in plan.partitions if each.head is not None),
    ]


def _forgotten(metadata: Metadata) -> Iterator[Row]:
    if metadata.transactional_ids:
        yield _row(change=f"{counted(metadata.transactional_ids, 'transactional id')} forgotten")
    if metadata.pending:
        yield _row(change=f"{counted(metadata.pending, 'transaction')} with offsets forgotten")


def _row(**known: Any) -> Row:
    return dict.fromkeys(COLUMNS) | known


def _topic_row(change: TopicChange) -> Row:
    match change.before, change.after:
        case None, Topic() as after:
            return _row(topic=after.name, change="topic created")
        case Topic() as before, None:
            return _row(topic=before.name, change="topic removed")
        case Topic() as before, Topic() as after:
            grown = after.partitions != before.partitions
            kind = f"{before.partitions} partitions before" if grown else "epoch kept"
            return _row(topic=after.name, change=kind, epoch=after.epoch_floor)
        case _:
            raise AssertionError("a change has a topic before or after it")


def _partition_row(each: PartitionPlan) -> Row:
    assert each.head is not None, "only changes are shown"
    before = each.known.head
    if before is None:
        change = "created"
    elif before.next != each.head.next or each.known.meta.log_start != each.log_start:
        change = f"{each.known.meta.log_start}-{before.next} before"
    else:
        change = "fenced" if before.tail == each.head.tail else "other objects"
    return _row(
        topic=each.head.topic,
        partition=each.partition,
        change=change,
        log_start=each.log_start,
        end=each.head.next,
        records=each.head.next - each.log_start,
        unsettled=sum(seg.is_slice for seg in each.head.tail),
        epoch=each.head.epoch,
    )


def warnings(metadata: Metadata, bucket: Bucket, plan: Plan) -> Iterator[str]:
    """What is not recovered, or may be wrong."""
    for each in plan.partitions:
        name = f"{plan.names[each.topic_id]}/{each.partition}"
        for span in each.chain.gaps:
            yield f"GAP {name}: nothing is stored of offsets {span}. They were deleted, or they are lost"
        for span in each.chain.left_out:
            yield f"LEFT OUT {name}: offsets {span} are stored, and were not acknowledged as far as anything shows"
    yield from _aborted(plan)
    for change in plan.topics:
        yield from _of_topic(change)
    for topic_id, partitions in plan.unnamed.items():
        yield (
            f"LEFT OUT topic {topic_id.hex()}: {len(partitions)} partitions have records in bundles, and nothing shows "
            f"the topic's name. If you know it, add --topic-name {topic_id.hex()}=NAME"
        )
    for key, why in metadata.unreadable.items():
        yield f"UNREADABLE {key}: {why}; nothing is written for it"
    yield from _some(f"NOT USED {key}: {why}" for key, why in sorted(bucket.unused.items()))
    yield from _some(
        f"NOT READ {key}: {why}. Which transactions begin and end in it is not known"
        for key, why in sorted(bucket.unread.items())
    )


def _aborted(plan: Plan) -> Iterator[str]:
    ended = [(each, each.aborted) for each in plan.partitions if each.aborted]
    if not ended:
        return
    producers = {begun.producer_id for _, aborted in ended for begun in aborted}
    yield (
        f"ABORTED: what {counted(len(producers), 'producer')} had open in {counted(len(ended), 'partition')}, because "
        "nothing shows how it was decided"
    )
    yield from _some(
        f"ABORTED {plan.names[each.topic_id]}/{each.partition}: transactions of "
        + ", ".join(f"producer {begun.producer_id} from offset {begun.first} on" for begun in aborted)
        for each, aborted in ended
    )


def _of_topic(change: TopicChange) -> Iterator[str]:
    match change.before, change.after:
        case None, after if after is not None:
            yield (
                f"TOPIC {after.name} is created with {after.partitions} partitions and {dict(after.configs)}: "
                "its own configs, and partitions without records, were only in etcd"
            )
        case before, None if before is not None:
            yield f"TOPIC {before.name} (id {before.topic_id.hex()}) was deleted after the snapshot, and is removed"
        case before, after if (
            before is not None and after is not None and after.partitions != before.partitions
        ):
            yield f"TOPIC {after.name} grows from {before.partitions} to {after.partitions} partitions"


def _some(lines: Iterator[str]) -> Iterator[str]:
    for count, line in enumerate(lines):
        if count < SHOWN_MAX:
            yield line
            continue
        yield f"… and {1 + sum(1 for _ in lines)} more"
