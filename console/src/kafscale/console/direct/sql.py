"""A query of a person, in the child process: the lake is cut to what the login may read before the text is parsed."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from contextlib import aclosing
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import orjson
from kafscale.console.direct.questions import QUERY_MEMORY_BYTES, RESULT_BYTES_MAX, ROWS_MAX
from kafscale.lake.catalog import Lake, Log, read_lake, uncommitted
from kafscale.lake.sources import Seen
from kafscale.lake.sql import QueryFailed, stream
from kafscale.operations.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster

ROWS_PER_LINE: Final = 100
PARQUET_PART_BYTES: Final = 192 << 10
CELL_CHARS_MAX: Final = 16 * 1024
EXACT_MAX: Final = 1 << 53
PROGRESS_ROWS: Final = 100_000


async def answer_sql(cluster: Cluster, question: Row, say: Say) -> None:
    """`text`, `topics` (those to read), `groups`, `configs` (the topics whose configs are seen), `isolation`,
    `parquet`.

    Says {columns}, then {rows} and {read}, and {end}. With `parquet`, {parquet} instead of {rows}.
    """
    lake = Lake(cluster.etcd, cluster.keys, cluster.store)
    logs = await read_lake(lake, question["topics"])
    say({"read": 0, "records": records_in(logs)})
    if question["isolation"] == "uncommitted":
        logs = uncommitted(logs)
    notices: list[str] = []
    parts = stream(
        lake,
        logs,
        question["text"],
        Counting(say).counted,
        notices.append,
        memory_bytes=QUERY_MEMORY_BYTES,
        seen=Seen(frozenset(question["groups"]), frozenset(question["configs"])),
    )
    try:
        async with aclosing(parts):
            first = await anext(parts)
            say({"columns": [{"name": field.name, "type": str(field.type)} for field in first.schema]})
            result = ParquetFile(say, first.schema) if question["parquet"] else Result(say)
            result.take(first)
            async for part in parts:
                if result.cut is not None:
                    break
                result.take(part)
            result.finish()
    except QueryFailed as wrong:
        say({"error": "bad_query", "sentence": str(wrong)})
        return
    say({"end": {"rows": result.rows, "cut": result.cut, "notices": notices}})


def records_in(logs: list[Log]) -> int:
    return sum(seg.records for log in logs for seg in log.segments)


class Counting:
    """Says how many rows were read, not too often. Called in the thread that pulls them."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._read = self._said = 0

    def counted(self, rows: int) -> None:
        self._read += rows
        if self._read - self._said >= PROGRESS_ROWS:
            self._said = self._read
            self._say({"read": self._read})


class Result:
    """Sends rows until one of the bounds is reached."""

    at_once = ROWS_PER_LINE

    def __init__(self, say: Say) -> None:
        self._say = say
        self._bytes = 0
        self.rows = 0
        self.cut: str | None = None
        """The bound that ended it."""

    def take(self, part: pa.RecordBatch) -> None:
        for at in range(0, part.num_rows, self.at_once):
            some = part.slice(at, min(self.at_once, ROWS_MAX - self.rows))
            if not some.num_rows:
                self.cut = f"{ROWS_MAX:,} rows"
                return
            if not self._fits(some):
                self.cut = f"{RESULT_BYTES_MAX >> 20} MiB"
                return
            self.rows += some.num_rows

    def _fits(self, some: pa.RecordBatch) -> bool:
        """Sends the rows, if they do not pass the bound of bytes."""
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in some.columns]
        shown = [[cell(value) for value in row] for row in zip(*columns, strict=True)]
        self._bytes += len(orjson.dumps(shown))
        if self._bytes > RESULT_BYTES_MAX:
            return False
        self._say({"rows": shown})
        return True

    def finish(self) -> None:
        """After the last row."""


class ParquetFile(Result):
    """The rows as one Parquet file, which is sent at the end. Its bound of bytes is that of the values as Arrow has
    them. Raises QueryFailed for columns that a file cannot have."""

    at_once = 1
    """A value may be as large as the bound."""

    def __init__(self, say: Say, schema: pa.Schema) -> None:
        super().__init__(say)
        twice = [name for name, count in Counter(schema.names).items() if count > 1]
        if twice:
            raise QueryFailed(f'two columns have the name "{twice[0]}"; give one another name with AS')
        self._schema = schema
        self._kept: list[pa.RecordBatch] = []

    def _fits(self, some: pa.RecordBatch) -> bool:
        self._bytes += some.nbytes
        if self._bytes > RESULT_BYTES_MAX:
            return False
        self._kept.append(some)
        return True

    def finish(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = BytesIO()
        try:
            pq.write_table(
                pa.Table.from_batches(self._kept, self._schema).combine_chunks(), file, compression="zstd"
            )
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as wrong:
            sentence = f"Parquet has no such type ({wrong}); cast the column, for example to varchar"
            raise QueryFailed(sentence) from wrong
        data = file.getbuffer()
        for at in range(0, len(data), PARQUET_PART_BYTES):
            self._say({"parquet": b64encode(data[at : at + PARQUET_PART_BYTES]).decode()})


def cell(value: Any) -> Any:
    """As JSON that a browser reads without loss: a number that JavaScript does not have exactly is text."""
    return _exact(plain(value))


def _exact(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int() if abs(value) > EXACT_MAX:
            return str(value)
        case str() if len(value) > CELL_CHARS_MAX:
            return f"{value[:CELL_CHARS_MAX]}… ({len(value):,} characters)"
        case list():
            return [_exact(each) for each in value]
        case dict():
            return {key: _exact(each) for key, each in value.items()}
        case _:
            return value
