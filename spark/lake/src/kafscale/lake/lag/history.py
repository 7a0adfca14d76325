"""The history of lag in the object store: Parquet files, written once under unique names, and found by their names.

No other record of them exists: `{namespace}/@kafscale/lag/dt=…/hour=…/`. The writer deletes files that are too old. A
reader that meets such a deletion continues without the file.
"""

from __future__ import annotations

import io
import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kafscale.lake.catalog import Lake
from kafscale.lake.lag.samples import PLACE, SAMPLES, Kind, Sample
from kafscale.lake.tables import TIME
from kafscale.storage.objects import IfAbsent, ObjectNotFound
from kafscale.storage.system import random_uuid
from kafscale.storage.task_groups import gather_bounded

log = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
KEEP_MS: Final = 30 * DAY_MS
READS_AT_ONCE: Final = 16
DELETES_MAX: Final = 10_000
"""In one run; a day of one sampler has 2,880 files."""


class Files:
    """Files that were read already. They never change, so a reader that comes again reads only new files."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()

    def get(self, key: str) -> pa.Table | None:
        found = self._tables.get(key)
        if found is not None:
            self._tables.move_to_end(key)
        return found

    def put(self, key: str, table: pa.Table) -> None:
        if key in self._tables:
            return  # two reads at once
        self._tables[key] = table
        self._bytes += table.nbytes + len(key)
        while self._bytes > self._bytes_max:
            gone, oldest = self._tables.popitem(last=False)
            self._bytes -= oldest.nbytes + len(gone)


async def write_sample(lake: Lake, found: Sample, now_ms: int) -> str | None:
    """The object's key; None, and no object, for a sample without rows."""
    if not found.rows.num_rows:
        return None
    file = io.BytesIO()
    pq.write_table(found.rows, file, compression="zstd")
    key = lake.keys.lag_samples_key(now_ms, found.kind.value, random_uuid().hex)
    await lake.store.put(key, [file.getvalue()], condition=IfAbsent())
    return key


async def read_samples(
    lake: Lake, since_ms: int, until_ms: int, kinds: Iterable[Kind] = tuple(Kind), files: Files | None = None
) -> pa.Table:
    """Rows of samples in [since, until], by time and place. Only files whose names say so are read."""
    known = Files(0) if files is None else files
    wanted = {kind.value for kind in kinds}
    first = since_ms - since_ms % 1000  # names are cut to the second
    keys = []
    start_after = lake.keys.lag_hour_prefix(since_ms)
    async for info in lake.store.list(lake.keys.lag_prefix(), start_after=start_after):
        name = lake.keys.parse_lag_samples(info.key)
        if name is None:
            continue
        if name.at_ms > until_ms:
            break  # folders of days and hours are listed in their order
        if name.kind in wanted and name.at_ms >= first:
            keys.append(info.key)
    tables = await gather_bounded((_read(lake, key, known) for key in keys), READS_AT_ONCE)
    found = pa.concat_tables([SAMPLES.empty_table(), *tables])
    since, until = pa.scalar(since_ms, TIME), pa.scalar(until_ms, TIME)
    found = found.filter((pc.field("ts") >= since) & (pc.field("ts") <= until))
    return found.sort_by([("ts", "ascending"), *((name, "ascending") for name in PLACE)])


async def _read(lake: Lake, key: str, files: Files) -> pa.Table:
    """A damaged file is a gap in the history, as one that has expired."""
    found = files.get(key)
    if found is not None:
        return found
    try:
        found = pq.read_table(io.BytesIO(await lake.store.get(key)), schema=SAMPLES)
        files.put(key, found)
        return found
    except ObjectNotFound:
        return SAMPLES.empty_table()
    except (pa.ArrowException, OSError) as error:
        log.error("lag history file skipped: %s: %s", key, error)
        return SAMPLES.empty_table()


async def expire(lake: Lake, now_ms: int, keep_ms: int = KEEP_MS) -> int:
    """Delete files that are older, oldest first and DELETES_MAX at most: how many went."""
    gone = 0
    async for info in lake.store.list(lake.keys.lag_prefix()):
        name = lake.keys.parse_lag_samples(info.key)
        if name is None:
            continue
        if name.at_ms >= now_ms - keep_ms or gone == DELETES_MAX:
            break
        gone += await lake.store.delete(info.key)
    return gone
