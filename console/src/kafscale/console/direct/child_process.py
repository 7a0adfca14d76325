"""The process that answers one question to etcd and the store, with limits, and ends.

Law S6: what a person asks (SQL) and what clients wrote (records) is read here, not in the console. If this process
dies, only that answer is lost.

The question is a JSON object, the answer several: messages of `console.child`. When the input ends, the console has
gone or nobody waits any more, so the process ends too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import orjson
from kafscale.console.child import give, limit_self, take
from kafscale.console.direct.questions import MEMORY_BYTES, MEMORY_SENTENCE, Row, Say, target_of_json

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster

Work = Callable[["Cluster", Row, Say], Awaitable[None]]


def work_of(kind: str) -> Work:
    """Only what this question needs is imported."""
    match kind:
        case "sql":
            from kafscale.console.direct.sql import answer_sql

            return answer_sql
        case "search":
            from kafscale.console.direct.search import answer_search

            return answer_search
        case "batch":
            from kafscale.console.direct.batch import answer_batch

            return answer_batch
        case "storage":
            from kafscale.console.direct.storage import answer_storage

            return answer_storage
        case "damage":
            from kafscale.console.direct.damage import answer_damage

            return answer_damage
        case "cost":
            from kafscale.console.direct.cost import answer_cost

            return answer_cost
        case "health":
            from kafscale.console.direct.health import answer_health

            return answer_health
    raise AssertionError(kind)


async def run(question: Row, say: Say) -> None:
    from kafscale.lake.heads import CorruptSegment
    from kafscale.operations.clusters import chosen_dir, opened
    from kafscale.operations.datadir import DataDir
    from kafscale.operations.sentences import Trouble
    from kafscale.runtime.settings_load import BadSettings
    from kafscale.storage.etcd.client import EtcdError
    from kafscale.storage.objects import StoreError
    from kafscale.storage.schema import UnreadableValue

    target = target_of_json(question["target"])
    known = (Trouble, BadSettings, EtcdError, StoreError, UnreadableValue, CorruptSegment)
    try:
        if (root := chosen_dir(target.data_dir)) is not None:
            DataDir(root).must_run()  # of a stopped one, `opened` would start its etcd
        async with opened(target, lambda _: None) as cluster:
            await work_of(question["kind"])(cluster, question, say)
    except known as trouble:
        say({"error": "failed", "sentence": str(trouble)})
    except MemoryError:
        say({"error": "too_much", "sentence": MEMORY_SENTENCE})
    except ExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, known):
            raise
        say({"error": "failed", "sentence": str(first)})


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    asked = take(sys.stdin.buffer)
    if asked is None:
        return
    question = orjson.loads(asked)
    limit_self(MEMORY_BYTES, cpu_s=question["cpu_s"], writes=False)
    threading.Thread(target=_end_with_input, daemon=True).start()

    saying = threading.Lock()

    def say(row: Row) -> None:
        """Threads that read for a query say it too."""
        with saying:
            give(sys.stdout.buffer, orjson.dumps(row))

    asyncio.run(run(question, say))
    os._exit(0)  # threads of libraries may still wait


if __name__ == "__main__":
    main()
