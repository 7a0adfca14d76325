"""When a job of upkeep last ended well, as etcd keeps it: whoever runs the job next counts from there."""

from __future__ import annotations

from kafscale.storage.heads import parse_value
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2 as pb


def encode_job_run(ended_ms: int) -> bytes:
    return pb.JobRun(schema=SCHEMA, ended_ms=ended_ms).SerializeToString()


def decode_job_run(data: bytes) -> int:
    message = pb.JobRun()
    parse_value(message, data, "job run")
    return message.ended_ms
