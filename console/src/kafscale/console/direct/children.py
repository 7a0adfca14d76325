"""Starts the process of `child_process.py` for a question, and bounds it.

Laws: AT_ONCE_MAX processes run at once, and one of a session. A process ends after WALL_S, when nobody waits for its
answer any more, and with the console; a reader who is slow does not keep it. No answer is larger than
OUTPUT_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson
from kafscale.console.answers import Problem
from kafscale.console.child import Child, TooLong
from kafscale.console.direct.questions import (
    AT_ONCE_MAX,
    CPU_S,
    MEMORY_SENTENCE,
    OUTPUT_BYTES_MAX,
    TURN_S,
    WALL_S,
    Row,
    target_to_json,
)

if TYPE_CHECKING:
    from kafscale.operations.target import Target

MODULE: Final = "kafscale.console.direct.child_process"
_SMALL: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Other allocators reserve more address space than the limit."""
_ENDED: Final = object()


class Children:
    def __init__(self, target: Target) -> None:
        self._target = target_to_json(target)
        self._running: set[str] = set()
        """The sessions whose question is being answered."""
        self._freed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(
        self, session: str, question: Row, *, wall_s: float = WALL_S, cpu_s: int = CPU_S
    ) -> AsyncGenerator[Row, None]:
        """The lines of the answer, which end with a Problem if the process fails. Raises Problem if it has no turn."""
        await self._turn(session)
        lines: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(
            self._answer(question | {"target": self._target, "cpu_s": cpu_s}, wall_s, lines)
        )
        self._tasks.add(task)

        def ended(_: object) -> None:
            self._tasks.discard(task)
            self._running.discard(session)
            self._freed.set()
            lines.put_nowait(_ENDED)

        task.add_done_callback(ended)
        answer = _lines(task, lines)
        await anext(answer)
        return answer

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            _stop(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self, session: str) -> None:
        try:
            async with asyncio.timeout(TURN_S):
                while session in self._running or len(self._running) >= AT_ONCE_MAX:
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            mine = session in self._running
            whose = "your other question is still being answered" if mine else "others ask just now"
            sentence = f"{whose}; try again in a moment"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "busy", sentence) from None
        self._running.add(session)

    async def _answer(self, question: Row, wall_s: float, lines: asyncio.Queue[Any]) -> None:
        """Puts all lines, or a problem after them."""
        try:
            # Quiet: the text of a person's query must not be in the log.
            child = await Child.start(MODULE, OUTPUT_BYTES_MAX, quiet=True, env=_SMALL)
        except OSError as failed:
            sentence = f"no process could be started: {failed.strerror}; try again in a moment"
            lines.put_nowait(Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", sentence))
            return
        problem = None
        try:
            async with asyncio.timeout(wall_s):
                problem = await self._take(child, question, lines)
        except TimeoutError:
            problem = _too_much(
                f"stopped after {wall_s:.0f} s; ask for less: a shorter time, fewer partitions"
            )
        finally:
            await child.gone()
        if problem is not None:  # not before: its receiver may cancel this task
            lines.put_nowait(problem)

    async def _take(self, child: Child, question: Row, lines: asyncio.Queue[Any]) -> Problem | None:
        taken = 0
        try:
            await child.send(orjson.dumps(question))
            while (line := await child.receive()) is not None:
                taken += len(line)
                if taken > OUTPUT_BYTES_MAX:
                    raise TooLong
                lines.put_nowait(orjson.loads(line))
        except ConnectionError:  # it ended before it read the question
            pass
        except TooLong:
            return _too_much("the answer is too large; ask for less")
        code = await child.exit_code()
        return None if code == 0 else _of_exit(code, question["cpu_s"])


def _stop(task: asyncio.Task[None]) -> None:
    """Once: a second cancellation would come while it waits for the end of its process."""
    if not task.cancelling():
        task.cancel()


async def _lines(task: asyncio.Task[None], lines: asyncio.Queue[Any]) -> AsyncGenerator[Row, None]:
    try:
        yield {}  # a generator that never began would not stop the task at its end
        while (line := await lines.get()) is not _ENDED:
            if isinstance(line, Problem):
                raise line
            yield line
    finally:
        _stop(task)


def _of_exit(code: int, cpu_s: int) -> Problem:
    if code == -signal.SIGXCPU:
        return _too_much(
            f"stopped after {cpu_s} s of processor time; ask for less: a shorter time, fewer topics"
        )
    return _too_much(MEMORY_SENTENCE + f" (the process ended with {code})")


def _too_much(sentence: str) -> Problem:
    return Problem(HTTPStatus.OK, "too_much", sentence)
