"""The records of a topic as they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import TimeoutError as NotTaken
from http import HTTPStatus
from typing import Final

from kafscale.access.acl import Operation
from kafscale.client.admin_client import Client, KafkaTrouble
from kafscale.console.answers import Lines, Problem, Row, problem_of
from kafscale.console.api.records import ask_of, record_row
from kafscale.console.api.showing import showing_of
from kafscale.console.records import cursor
from kafscale.console.records.page import Ask, logs_of
from kafscale.console.records.tail import AGE_S, Tails, Turn, follow
from kafscale.console.rights import on_topic
from kafscale.console.routes import Call, Route

_TAKEN_TIMEOUT_S: Final = 0.5
_END: Final = None

_Turns = asyncio.Queue[Turn | None]


async def tail(call: Call) -> Lines:
    """A line each second: `items` by arrival, `not_shown` (how many more came), `at` (the cursor from which another
    tail goes on). The last one has `over`. The query is that of a page of records;
    without `cursor` it begins at the end."""
    ask = ask_of(call.path["topic"], call.query)
    await showing_of(call, ())  # a wrong format is refused before the answer begins
    return Lines(_lines(call, ask), waits=True)


async def _lines(call: Call, ask: Ask) -> AsyncIterator[Row]:
    with call.site.tails.room():
        client = await call.client()
        logs = await call.kafka(
            lambda kafka: logs_of(kafka, ask.topic, ask.partition, committed=ask.committed)
        )
        cut = ask.cut or {}
        at = {number: min(max(cut.get(number, log.end), log.start), log.end) for number, log in logs.items()}
        yield await _row(call, Turn(at))
        stop = threading.Event()
        turns: _Turns = asyncio.Queue(1)
        follower = asyncio.create_task(_followed(call.site.tails, client, ask, at, stop, turns))
        try:
            while (found := await turns.get()) is not _END:
                if call.login.ended:
                    raise Problem(HTTPStatus.UNAUTHORIZED, "no_login", "log in again")
                yield await _row(call, found)
            await follower
            yield {"over": f"it ended after {AGE_S / 60:.0f} minutes"}
        except KafkaTrouble as trouble:
            raise problem_of(trouble) from trouble
        finally:
            stop.set()
            await asyncio.wait({follower})


async def _followed(
    tails: Tails, client: Client, ask: Ask, at: dict[int, int], stop: threading.Event, turns: _Turns
) -> None:
    """The consumer is used and closed in one thread: librdkafka's must not be closed while it polls. Raises
    KafkaTrouble."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        try:
            for found in follow(client, ask.topic, at, committed=ask.committed, stop=stop):
                _hand_over(loop, turns, found, stop)
        finally:
            _hand_over(loop, turns, _END, stop)

    await loop.run_in_executor(tails.threads, run)


def _hand_over(
    loop: asyncio.AbstractEventLoop, turns: _Turns, found: Turn | None, stop: threading.Event
) -> None:
    """Waits while the reader is slow; what comes meanwhile stays in the topic."""
    if stop.is_set():
        return
    taken = asyncio.run_coroutine_threadsafe(turns.put(found), loop)
    while not stop.is_set():
        try:
            taken.result(_TAKEN_TIMEOUT_S)
        except NotTaken:
            continue
        return
    taken.cancel()


async def _row(call: Call, found: Turn) -> Row:
    showing = await showing_of(call, found.records)
    return {
        "items": [record_row(record, showing) for record in found.records],
        "not_shown": found.not_shown,
        "at": cursor.to_text(found.at),
    }


ROUTES: Final[Sequence[Route]] = (
    Route(method="GET", path="/topics/{topic}/tail", handler=tail, needs=on_topic(Operation.READ)),
)
