"""Behind which log a job's next run is to go on, as etcd keeps it. A value that cannot be read: at the first one."""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.lake.catalog import Lake
from kafscale.storage.job_runs import decode_job_place, encode_job_place
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

Place = tuple[Topic, int]


async def read_place(lake: Lake, job: str) -> tuple[str, int] | None:
    """Raises EtcdError."""
    kv = await lake.etcd.get(lake.keys.job_place(job))
    if kv is None:
        return None
    try:
        return decode_job_place(kv.value)
    except UnreadableValue:
        return None


async def write_place(lake: Lake, job: str, place: Place) -> None:
    """Raises EtcdError."""
    topic, partition = place
    await lake.etcd.put(lake.keys.job_place(job), encode_job_place(topic.name, partition))


def behind(places: Sequence[Place], last: tuple[str, int] | None) -> list[Place]:
    """All of them, by topic and partition, those behind the last one first. Pure."""
    ordered = sorted(places, key=lambda place: (place[0].name, place[1]))
    if last is None:
        return ordered
    at = sum((topic.name, partition) <= last for topic, partition in ordered)
    return [*ordered[at:], *ordered[:at]]
