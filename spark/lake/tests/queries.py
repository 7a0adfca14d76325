"""The whole answer to a query, for tests."""

from collections.abc import Sequence

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.lake.sql import stream


async def query(lake: Lake, logs: Sequence[Log], text: str) -> pa.Table:
    return pa.Table.from_batches([batch async for batch in stream(lake, logs, text)])
