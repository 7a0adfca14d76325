"""How far a job's round is in a lake, as etcd keeps it, so that another goes on there. A value that cannot be read: at
the first log."""

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
    """Nothing of this log is left to do."""
    return JobPlace(topic=place[0].name, partition=place[1])


def behind(places: Sequence[Partition], last: JobPlace | None) -> list[Partition]:
    """All of them, by topic and partition, those first where the round that came to `last` goes on. Pure."""
    ordered = sorted(places, key=_order)
    if last is None:
        return ordered
    reached = (last.topic, last.partition)
    at = sum(_order(place) < reached or (_order(place) == reached and not last.key) for place in ordered)
    return [*ordered[at:], *ordered[:at]]


class Reached:
    """How far a round is whose logs are gone through several at once: all that lies before is done. Pure."""

    def __init__(self, places: Sequence[Partition]) -> None:
        """In the round's order."""
        self._ahead = deque(places)
        self._keys: dict[tuple[str, int], str] = {}
        self._last: JobPlace | None = None

    def done(self, place: Partition, key: str) -> None:
        """All of this log up to this key; with an empty one all of it."""
        self._keys[_order(place)] = key
        while self._ahead and self._keys.get(_order(self._ahead[0])) == "":
            first = self._ahead.popleft()
            del self._keys[_order(first)]
            self._last = through(first)

    @property
    def place(self) -> JobPlace | None:
        """None: nothing was done yet."""
        if self._ahead:
            name, partition = _order(self._ahead[0])
            key = self._keys.get((name, partition))
            if key is not None:
                return JobPlace(topic=name, partition=partition, key=key)
        return self._last


def _order(place: Partition) -> tuple[str, int]:
    topic, partition = place
    return topic.name, partition
