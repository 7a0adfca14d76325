"""A search of the records of one topic, in the child process: newest first, with hits as they are found.

It says how much it has read of how much, and from which cut another search goes on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import duckdb
from kafscale.console.direct.questions import QUERY_MEMORY_BYTES
from kafscale.console.direct.search_plan import Chunk, chunks
from kafscale.console.records import cursor
from kafscale.console.records.hits import HITS_MAX, TIMEOUT_S, hit_row
from kafscale.lake.catalog import Lake, Log, read_lake, uncommitted
from kafscale.lake.sources import Seen
from kafscale.lake.sql import QueryFailed, stream

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster

NOTHING: Final = Seen(frozenset(), frozenset())


class Search:
    """`done`: the cut so far."""

    def __init__(self, lake: Lake, logs: Sequence[Log], question: Row) -> None:
        self._lake = lake
        self._condition = condition(question)
        self._since_ms: int | None = question["since_ms"]
        self._found = 0
        self.read = 0
        self.done = {log.partition: log.stable_end for log in logs} | {
            int(partition): offset for partition, offset in question["cut"].items()
        }
        self.chunks = list(chunks(logs, self.done, self._since_ms))
        self.records = sum(chunk.records for chunk in self.chunks)

    def progress(self, at_ms: int | None = None) -> Row:
        return {
            "read": self.read,
            "records": self.records,
            "found": self._found,
            "cursor": cursor.to_text(self.done),
            "at_ms": at_ms,
        }

    async def run(self, say: Say, now_s: Callable[[], float]) -> str:
        """Says {hits} and progress. Why it ended: `end`, `hits` or `time`. Raises QueryFailed."""
        deadline_s = now_s() + TIMEOUT_S
        for chunk in self.chunks:
            if now_s() >= deadline_s:
                return "time"
            if not chunk.skipped:
                hits, cut_short = await self._hits(chunk)
                self._found += len(hits)
                if hits:
                    say({"hits": hits})
                if cut_short:
                    self.done[chunk.log.partition] = hits[-1]["offset"]
                    return "hits"
            self.read += chunk.records
            self.done[chunk.log.partition] = chunk.start
            say(self.progress(chunk.newest_ms if chunk.newest_ms >= 0 else None))
        return "end"

    async def _hits(self, chunk: Chunk) -> tuple[list[Row], bool]:
        """The newest of the chunk, and whether there are more than the search may still find."""
        left = HITS_MAX - self._found
        text = f"{SELECT} where {self._condition}{ORDER} limit {left + 1}"
        rows = await self._rows(chunk.log, text)
        states = await self._states(chunk, [row["offset"] for row in rows[:left]])
        return [hit_row(**row, state=states.get(row["offset"])) for row in rows[:left]], len(rows) > left

    async def _states(self, chunk: Chunk, offsets: Sequence[int]) -> dict[int, str]:
        """`open` or `aborted` of those that readers of committed records do not get (R3)."""
        if chunk.log.committed_only:
            return {}
        log = replace(chunk.log, committed_only=True)
        found = {offset: "open" for offset in offsets if offset >= log.lso}
        stable = [offset for offset in offsets if offset < log.lso]
        if stable and log.aborted:
            text = f"{OFFSETS} in ({', '.join(map(str, stable))})"
            committed = {row["offset"] for row in await self._rows(log, text)}
            found |= {offset: "aborted" for offset in stable if offset not in committed}
        return found

    async def _rows(self, log: Log, text: str) -> list[Row]:
        rows: list[Row] = []
        async with aclosing(
            stream(self._lake, [log], text, memory_bytes=QUERY_MEMORY_BYTES, seen=NOTHING)
        ) as parts:
            async for part in parts:
                rows += part.to_pylist(maps_as_pydicts="lossy")
        return rows


SELECT: Final = 'select partition, "offset", epoch_ms(timestamp) as timestamp_ms, key, value from records'
OFFSETS: Final = 'select "offset" from records where "offset"'
ORDER: Final = ' order by "offset" desc'


def condition(question: Row) -> str:
    """As SQL. A record for which it fails, because it is not JSON for example, is no hit.

    A condition of a person may be any SQL: the query has only the one topic, which the person may read.
    """
    parts = []
    if question["where"]:
        parts.append(
            f"coalesce(try((\n{question['where']}\n)), false)"
        )  # a line of its own: it may end in a comment
    if question["text"]:
        sought = "'" + question["text"].lower().replace("'", "''") + "'"
        parts.append(f"(contains(lower(value_text), {sought}) or contains(lower(key_text), {sought}))")
    if question["since_ms"] is not None:
        parts.append(f"timestamp >= make_timestamptz({int(question['since_ms'])} * 1000)")
    if question["until_ms"] is not None:
        parts.append(f"timestamp < make_timestamptz({int(question['until_ms'])} * 1000)")
    return " and ".join(parts) or "true"


COLUMNS: Final = 'key, value, key_text, value_text, headers, partition, "offset", timestamp'
_MISTAKE: Final = re.compile(r"(?:Parser|Binder|Catalog|Invalid Input|Conversion) Error: (.*)")
_NO_COLUMN: Final = re.compile(r'Referenced column "(.*)" not found')
_NO_FIELD: Final = re.compile(r"Cannot extract field '(.*?)' from")
_BARE_OFFSET: Final = re.compile(r'(?<!["\'\w$.])offset(?!["\'\w])', re.IGNORECASE)


def check(where: str) -> None:
    """Raises QueryFailed. In the query of the search, DuckDB would name words that the person did not write."""
    try:
        duckdb.SQLExpression(where)
    except duckdb.Error as refused:
        raise QueryFailed(str(refused)) from refused


def refusal(where: str, words: str) -> str:
    """What is wrong with a condition, and how one is written. `words`: DuckDB's. Pure."""
    mistake = _MISTAKE.match(words)
    if not where or mistake is None:  # the search failed, and not the condition
        return words
    what, field = mistake[1].rstrip("!."), "customer"
    lines = []
    if (column := _NO_COLUMN.match(what)) is not None:
        what = f"there is no column {column[1]}"
        if f'"{column[1]}"' in where:
            lines.append(f"Text is in single quotes: '{column[1]}'.")
            column = None
    if _BARE_OFFSET.search(where):
        lines.append('As the name of a column, "offset" has to stand in double quotes.')
    named = column or _NO_FIELD.match(what)
    if named is not None and named[1].isidentifier():
        field = named[1]
    return "\n".join(
        [
            f"The condition is refused: {what}.",
            *lines,
            f"A field of JSON: value ->> '$.{field}' = 'c-17'. As a number: (value ->> '$.{field}')::double > 17.",
            f"The columns are {COLUMNS}.",
        ]
    )


async def answer_search(cluster: Cluster, question: Row, say: Say) -> None:
    """`topic`, `partition` (or None), `where`, `text`, `since_ms`, `until_ms`, `cut`, `isolation`.

    Says {hits}, {read, records, found, cursor, at_ms}, and {end}: why it ended.
    """
    try:
        if question["where"]:
            check(question["where"])
        await _search(cluster, question, say)
    except QueryFailed as wrong:
        say({"error": "bad_query", "sentence": refusal(question["where"], str(wrong))})


async def _search(cluster: Cluster, question: Row, say: Say) -> None:
    lake = Lake(cluster.etcd, cluster.keys, cluster.store)
    logs = await read_lake(lake, [question["topic"]])
    if question["partition"] is not None:
        logs = [log for log in logs if log.partition == question["partition"]]
    if question["isolation"] == "uncommitted":
        logs = uncommitted(logs)
    search = Search(lake, logs, question)
    say(search.progress())
    ended = await search.run(say, time.monotonic)
    say(search.progress() | {"end": ended})
