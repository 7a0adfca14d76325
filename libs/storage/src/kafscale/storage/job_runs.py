"""What etcd keeps of upkeep's jobs, so that a run resumes where another ended, on any instance.

When a job last ended well; behind which log its next run goes on; and how far a pass of compaction came.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.storage.schema import SCHEMA, parse_value
from kafscale.store.v1 import store_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """The next run goes on behind this log; with a `key` in this log, behind the object of that name."""

    topic: str
    partition: int
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPass:
    """The segments below `next` were gone through with the newest keys of the dirty part below `end`.

    That stays true whatever others do, as records of a committed range never come back; so an old one does no harm.
    """

    next: int
    end: int
    left_ms: int


def encode_job_run(ended_ms: int) -> bytes:
    return pb.JobRun(schema=SCHEMA, ended_ms=ended_ms).SerializeToString()


def decode_job_run(data: bytes) -> int:
    message = pb.JobRun()
    parse_value(message, data, "job run")
    return message.ended_ms


def encode_job_place(place: JobPlace) -> bytes:
    return pb.JobPlace(
        schema=SCHEMA, topic=place.topic, partition=place.partition, key=place.key
    ).SerializeToString()


def decode_job_place(data: bytes) -> JobPlace:
    message = pb.JobPlace()
    parse_value(message, data, "job place")
    return JobPlace(topic=message.topic, partition=message.partition, key=message.key)


def encode_compaction_pass(left: CompactionPass) -> bytes:
    return pb.CompactionPass(
        schema=SCHEMA, next=left.next, end=left.end, left_ms=left.left_ms
    ).SerializeToString()


def decode_compaction_pass(data: bytes) -> CompactionPass:
    message = pb.CompactionPass()
    parse_value(message, data, "compaction pass")
    return CompactionPass(next=message.next, end=message.end, left_ms=message.left_ms)
