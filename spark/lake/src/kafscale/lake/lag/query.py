"""SQL queries over samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def ask(sql: str, samples: pa.Table, rules: Mapping[str, int | float]) -> list[tuple[Any, ...]]:
    """The rows of `sql` over `samples`, whose times become numbers of ms, and `rules`, a table of one row."""
    if not samples.num_rows:
        return []
    for name in ("ts", "commit_ts"):
        at = samples.schema.get_field_index(name)
        samples = samples.set_column(at, name, samples[name].cast(pa.int64()))
    import duckdb  # 50 MB of memory, which an upkeep of no groups does without

    with duckdb.connect(config={"threads": 1, "enable_external_access": False}) as connection:
        connection.register("samples", samples)
        connection.register("rules", pa.table({name: [value] for name, value in rules.items()}))
        return connection.sql(sql).fetchall()
