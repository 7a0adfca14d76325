"""What the workers of one front door have used of quotas: a page of memory that they share.

Laws: a worker writes only its own part of the page, and reads those of the others. A place of a part has the number of
a meter and the usage that its worker has ever counted on it, so a reader that looks late misses nothing. Two meters of
one worker may fall on one place: the later one takes it, and what of the earlier one was not read is lost. A reader may
see a place while it changes hands: then it counts nothing. No lock is needed.
"""

from collections.abc import Iterator
from typing import Final

from kafscale.access.quota import Meter, QuotaKey
from xxhash import xxh64_intdigest

PLACES: Final = 1_024
"""Of one worker."""
KNOWN_MAX: Final = 4 * PLACES
WORD_BYTES: Final = 8
PART_BYTES: Final = 2 * PLACES * WORD_BYTES


def meter_number(key: QuotaKey, meter: Meter) -> int:
    """The same in each process; never 0, which is that of a free place."""
    user, client_id = ("-" if name is None else f"={name}" for name in meter)
    return xxh64_intdigest("\0".join((key.value, user, client_id)).encode()) or 1


class UsagePage:
    def __init__(self, page: memoryview, worker: int) -> None:
        """`page`: PART_BYTES for each worker."""
        parts = [page[at : at + PART_BYTES] for at in range(0, len(page), PART_BYTES)]
        half = PLACES * WORD_BYTES
        self._numbers = [part[:half].cast("Q") for part in parts]
        self._amounts = [part[half:].cast("d") for part in parts]
        self._own = worker
        self._seen: list[dict[int, tuple[int, float]]] = [{} for _ in parts]
        for _ in self.news():
            pass  # usage from before this worker began

    def add(self, number: int, amount: float) -> None:
        """This worker has counted usage on a meter."""
        numbers, amounts, place = self._numbers[self._own], self._amounts[self._own], number % PLACES
        if numbers[place] != number:
            numbers[place] = 0
            amounts[place] = 0.0
            numbers[place] = number
        amounts[place] += amount

    def news(self) -> Iterator[tuple[int, float]]:
        """What the others have counted since the last call: the numbers of meters, and amounts."""
        for worker, (numbers, amounts) in enumerate(zip(self._numbers, self._amounts, strict=True)):
            if worker == self._own:
                continue
            seen = self._seen[worker]
            for place, number in enumerate(numbers):
                if not number:
                    continue
                amount = amounts[place]
                last_number, last_amount = seen.get(place, (0, 0.0))
                if (number, amount) == (last_number, last_amount):
                    continue
                seen[place] = (number, amount)
                delta = amount - (last_amount if number == last_number else 0.0)
                if delta > 0:
                    yield number, delta


class SharedUsage:
    """The usage of one worker's clients, for the others, and theirs for this worker's clients.

    A worker takes usage only of meters that it has used itself, since it throttles nobody else.
    """

    def __init__(self, page: UsagePage) -> None:
        self._page = page
        self._known: dict[int, tuple[QuotaKey, Meter]] = {}

    def counted(self, key: QuotaKey, meter: Meter, amount: float) -> None:
        """This worker has counted usage."""
        number = meter_number(key, meter)
        if self._known.pop(number, None) is None and len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[number] = (key, meter)
        self._page.add(number, amount)

    def news(self) -> Iterator[tuple[QuotaKey, Meter, float]]:
        """What the others have counted since the last call."""
        for number, amount in self._page.news():
            known = self._known.get(number)
            if known is not None:
                yield *known, amount
