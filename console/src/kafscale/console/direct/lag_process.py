"""The process that makes lag reports for the console. It has Arrow and DuckDB, so the console itself stays small.

Messages (`console.child`) are JSON objects. The first one is the target. A request: `id`, and the `groups` and `topics`
that the login may see; `group` asks for one in detail. The answer has the same `id`. A last one without `id` says why
the process ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from kafscale.console.child import NICE, give, received
from kafscale.console.direct.lag import NONE_YET, REPORT_BYTES_MAX
from kafscale.console.direct.lag_rows import group_rows, history, partition_rows
from kafscale.console.direct.questions import Row, Say, target_of_json
from kafscale.lake.catalog import Lake
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.lag.live import LiveFacts
from kafscale.lake.lag.report import Facts, Report, cut, make_report
from kafscale.lake.lag.sampler import Reader
from kafscale.operations.clusters import opened_running
from kafscale.operations.sentences import Trouble
from kafscale.runtime.settings_load import BadSettings
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.objects import StoreError

EVERY_S: Final = 15.0
REPORTS_MAX: Final = 8
"""Of different rights."""


class Reports:
    """A report for each set of rights, made again when the facts are newer."""

    def __init__(self, live: LiveFacts) -> None:
        self._live = live
        self._made: OrderedDict[tuple[frozenset[str], frozenset[str]], Report] = OrderedDict()
        self._of: Facts | None = None
        self._making = asyncio.Lock()

    async def answer(self, request: Row) -> Row:
        facts = await self._live.newest()
        found = NONE_YET | {"trouble": self._live.trouble, "making": self._live.is_reading}
        if facts is None:
            return found | {"id": request["id"]}
        report = await self._report(facts, frozenset(request["groups"]), frozenset(request["topics"]))
        found |= {"id": request["id"], "at_ms": report.at_ms, "history_ms": report.history_ms}
        name = request.get("group")
        if name is None:
            return found | {"groups": group_rows(report)}
        mine = [row for row in group_rows(report) if row["group"] == name]
        return found | {
            "groups": mine,
            "partitions": partition_rows(report, name),
            "history": history(report, name),
        }

    async def _report(self, facts: Facts, groups: frozenset[str], topics: frozenset[str]) -> Report:
        async with self._making:
            if facts is not self._of:
                self._made.clear()
                self._of = facts
            rights = groups, topics
            if rights not in self._made:
                self._made[rights] = await asyncio.to_thread(lambda: make_report(cut(facts, groups, topics)))
                if len(self._made) > REPORTS_MAX:
                    self._made.popitem(last=False)
            self._made.move_to_end(rights)
            return self._made[rights]


async def answering(
    requests: asyncio.StreamReader,
    answer: Callable[[Row], Awaitable[Row]],
    say: Say,
    tasks: asyncio.TaskGroup,
) -> None:
    """Until the input ends."""

    async def one(request: Row) -> None:
        say(await answer(request))

    while (message := await received(requests, REPORT_BYTES_MAX)) is not None:
        tasks.create_task(one(orjson.loads(message)))


async def run(say: Say) -> None:
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin.buffer
    )
    first = await received(requests, REPORT_BYTES_MAX)
    if first is None:
        return
    target = target_of_json(orjson.loads(first))
    async with opened_running(target) as cluster:
        lake = Lake(
            cluster.etcd, cluster.keys, cluster.store, History(cluster.etcd, cluster.keys, cluster.store)
        )
        reader = Reader(lake, unread_topics=False)
        try:
            async with asyncio.TaskGroup() as tasks:
                live = LiveFacts(lambda: reader.facts(int(time.time() * 1000)), EVERY_S, tasks)
                await answering(requests, Reports(live).answer, say, tasks)
                raise _InputEnded
        except* _InputEnded:
            pass


class _InputEnded(Exception):
    """Ends the readings that are under way."""


def say_on_stdout(found: Row) -> None:
    """The console reads all the time, so this does not wait."""
    give(sys.stdout.buffer, orjson.dumps(found))


def main() -> None:
    os.nice(NICE)
    try:
        asyncio.run(run(say_on_stdout))
    except (Trouble, BadSettings, EtcdError, StoreError, CorruptSegment, WentBack) as trouble:
        say_on_stdout({"trouble": str(trouble)})
    except ExceptionGroup as group:
        known = group.split((Trouble, CorruptSegment, WentBack))
        if known[1] is not None or known[0] is None:
            raise
        say_on_stdout({"trouble": str(known[0].exceptions[0])})


if __name__ == "__main__":
    main()
