"""What the processes of a front door, and other front doors, have used of quotas: a page of memory with parts.

Laws: a part has one writer. Workers write the first parts, and what other front doors have used is in those behind
(usage_peers.py). A place of a part has the number of a meter and the usage that was ever counted on it there, so a
reader that looks late misses nothing. Two meters may fall on one place: the later one takes it, and what of the earlier
one was not read is lost. A reader may see a place while it changes hands: then it counts nothing. No lock is needed.
"""

from collections.abc import Iterator
from typing import Final

from kafscale.access.quota import Meter, QuotaKey
from xxhash import xxh64_intdigest

PLACES: Final = 1_024
"""Of one part."""
KNOWN_MAX: Final = 4 * PLACES
PEERS_MAX: Final = 64
"""Parts for other front doors. Memory that nobody writes costs nothing."""
WORD_BYTES: Final = 8
PART_BYTES: Final = (1 + 2 * PLACES) * WORD_BYTES


def page_bytes(workers: int) -> int:
    return (workers + PEERS_MAX) * PART_BYTES


def meter_number(key: QuotaKey, meter: Meter) -> int:
    """The number of a meter, equal in each process. It is never 0, which marks a free place."""
    user, client_id = ("-" if name is None else f"={name}" for name in meter)
    return xxh64_intdigest("\0".join((key.value, user, client_id)).encode()) or 1


class UsagePart:
    """A part of the page with one writer and any number of readers."""

    __slots__ = ("_amounts", "_numbers", "_writes")

    def __init__(self, memory: memoryview) -> None:
        """PART_BYTES."""
        middle = (1 + PLACES) * WORD_BYTES
        self._writes = memory[:WORD_BYTES].cast("Q")
        self._numbers = memory[WORD_BYTES:middle].cast("Q")
        self._amounts = memory[middle:].cast("d")

    @property
    def writes(self) -> int:
        """Moves with each change."""
        return self._writes[0]

    def add(self, number: int, amount: float) -> None:
        place = number % PLACES
        if self._numbers[place] != number:
            self._numbers[place] = 0
            self._amounts[place] = 0.0
            self._numbers[place] = number
        self._amounts[place] += amount
        self._writes[0] += 1

    def totals(self) -> dict[int, float]:
        """By the number of the meter."""
        return {number: self._amounts[place] for place, number in enumerate(self._numbers) if number}


class UsageReader:
    """Reads what has changed in one part since the last look."""

    __slots__ = ("_part", "_seen", "_writes")

    def __init__(self, part: UsagePart) -> None:
        """What is there already does not count."""
        self._part = part
        self._writes = part.writes
        self._seen = part.totals()

    def news(self) -> dict[int, float]:
        """Amounts, by the number of the meter."""
        writes = self._part.writes  # before the places, so that a later change is seen the next time
        if writes == self._writes:
            return {}
        before, totals = self._seen, self._part.totals()
        self._writes, self._seen = writes, totals
        return grown(before, totals)


def grown(before: dict[int, float], after: dict[int, float]) -> dict[int, float]:
    """By how much totals have grown. One that is smaller now began again, and what it had lost is not known."""
    return {
        number: total - before.get(number, 0.0)
        for number, total in after.items()
        if total > before.get(number, 0.0)
    }


class UsagePage:
    def __init__(self, memory: memoryview, workers: int) -> None:
        """`memory`: `page_bytes`."""
        starts = range(0, len(memory), PART_BYTES)
        parts = [UsagePart(memory[start : start + PART_BYTES]) for start in starts]
        self.workers, self.peers = parts[:workers], parts[workers:]


class SharedUsage:
    """The usage of one worker's clients, for the others, and theirs for this worker's clients.

    A worker takes usage only of meters that it has used itself, since it throttles nobody else.
    """

    def __init__(self, page: UsagePage, worker: int) -> None:
        self._own = page.workers[worker]
        others = (part for part in (*page.workers, *page.peers) if part is not self._own)
        self._readers = [UsageReader(part) for part in others]
        self._known: dict[int, tuple[QuotaKey, Meter]] = {}

    def counted(self, key: QuotaKey, meter: Meter, amount: float) -> None:
        """This worker has counted usage."""
        number = meter_number(key, meter)
        if self._known.pop(number, None) is None and len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[number] = (key, meter)
        self._own.add(number, amount)

    def news(self) -> Iterator[tuple[int, QuotaKey, Meter, float]]:
        """What the others have counted since the last call, with the number of the other one."""
        for other, reader in enumerate(self._readers):
            for number, amount in reader.news().items():
                known = self._known.get(number)
                if known is not None:
                    yield other, *known, amount
