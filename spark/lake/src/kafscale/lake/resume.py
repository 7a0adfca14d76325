"""Where the next run of a job resumes, stored in etcd. If the value is unreadable, the run starts at the first log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafscale.lake.catalog import Lake
from kafscale.storage.job_runs import JobPlace, decode_job_place, encode_job_place
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic

Partition = tuple[Topic, int]


async def read_place(lake: Lake, job: str) -> JobPlace | None:
    """Raises EtcdError."""
    kv = await lake.etcd.get(lake.keys.job_place(job))
    if kv is None:
        return None
    try:
        return decode_job_place(kv.value)
    except UnreadableValue:
        return None


async def write_place(lake: Lake, job: str, place: JobPlace) -> None:
    """Raises EtcdError."""
    await lake.etcd.put(lake.keys.job_place(job), encode_job_place(place))


def through(place: Partition) -> JobPlace:
    """Records that this log is done."""
    return JobPlace(topic=place[0].name, partition=place[1])


def behind(places: Sequence[Partition], last: JobPlace | None) -> list[Partition]:
    """All of the logs, in the order in which a run resumes after `last`. Pure."""
    ordered = sorted(places, key=_order)
    if last is None:
        return ordered
    reached = (last.topic, last.partition)
    at = sum(_order(place) < reached or (_order(place) == reached and not last.key) for place in ordered)
    return [*ordered[at:], *ordered[:at]]


class Reached:
    """The position of a run that processes several logs at once: everything before it is done. Pure."""

    def __init__(self, places: Sequence[Partition]) -> None:
        """The items are in the order of the run."""
        self._ahead = deque(places)
        self._keys: dict[tuple[str, int], str] = {}
        self._last: JobPlace | None = None

    def done(self, place: Partition, key: str) -> None:
        """Records that this log is done up to this key; an empty key: all of it."""
        self._keys[_order(place)] = key
        while self._ahead and self._keys.get(_order(self._ahead[0])) == "":
            first = self._ahead.popleft()
            del self._keys[_order(first)]
            self._last = through(first)

    @property
    def place(self) -> JobPlace | None:
        """The position to resume at. None: nothing is done yet."""
        if self._ahead:
            name, partition = _order(self._ahead[0])
            key = self._keys.get((name, partition))
            if key is not None:
                return JobPlace(topic=name, partition=partition, key=key)
        return self._last


def _order(place: Partition) -> tuple[str, int]:
    topic, partition = place
    return topic.name, partition
