"""An ordinary client, and how long it has to wait: it produces and reads what it wrote, and asks as consumers do."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from kafscale.wire.schema import offset_commit, offset_fetch

from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import TOPIC, ask, ask_fetch, ask_list_offsets, ask_metadata, batch, send, usable
from e2e.harness.services import until

DATA_EVERY_S = 0.1
CONTROL_EVERY_S = 0.3
GROUP = "bystander"
END_TIMEOUT_S = 90.0


class Wrong(Exception):
    """An answer that a bystander must not get."""


@dataclass(slots=True)
class Bystander:
    """`seconds`: of each kind of request. One thread keeps two connections, another one comes anew each time."""

    bootstrap: str
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Returns when each kind of request has been answered once."""
        for run in (self._data, self._control):
            thread = threading.Thread(target=self._go_on, args=(run,), daemon=True)
            thread.start()
            self._threads.append(thread)
        until("the bystander is served", lambda: len(self.seconds) == 6 or bool(self.errors))

    def another_round(self) -> None:
        """Returns when requests that began after this call were answered."""
        seen = {kind: len(times) for kind, times in self.seconds.items()}
        until(
            "the bystander is served again",
            lambda: (
                all(len(self.seconds[kind]) > count + 1 for kind, count in seen.items()) or bool(self.errors)
            ),
        )

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)

    def _go_on(self, run: Callable[[], None]) -> None:
        """Over its errors, each of which is noted."""
        while not self._stop.is_set():
            try:
                run()
            except (OSError, Closed, Wrong) as error:
                self.errors.append(f"{run.__name__}: {error!r}")
                self._stop.wait(CONTROL_EVERY_S)

    def _timed(self, kind: str, code: Callable[[], int]) -> None:
        began = time.monotonic()
        found = code()
        self.seconds[kind].append(time.monotonic() - began)
        if found:
            raise Wrong(f"{kind} was answered {found}")

    def _data(self) -> None:
        with Raw.to(self.bootstrap) as producer, Raw.to(self.bootstrap) as consumer:
            _, offset = ask_list_offsets(consumer, -1)

            def read() -> int:
                (found,) = ask_fetch(consumer, offset=offset, max_wait_ms=500)
                return found.error_code

            while not self._stop.wait(DATA_EVERY_S):
                self._timed("produce", lambda: send(producer, batch()))
                self._timed("fetch", read)
                offset += 1

    def _control(self) -> None:
        while not self._stop.wait(CONTROL_EVERY_S):
            with Raw.to(self.bootstrap) as raw:
                self._timed("connect", lambda: not usable(raw))
                self._timed("metadata", lambda: ask_metadata(raw, TOPIC))
                self._timed("offsets", lambda: ask_list_offsets(raw, -1)[0])
                self._timed("group", lambda: commit(raw) or committed(raw))


def commit(raw: Raw) -> int:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    message = offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    code: int = ask(raw, offset_commit, 7, message).topics[0].partitions[0].error_code
    return code


def committed(raw: Raw) -> int:
    topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])
    code: int = (
        ask(raw, offset_fetch, 8, offset_fetch.OffsetFetchRequest(groups=[group])).groups[0].error_code
    )
    return code
