"""Spark ends a task early when it has enough rows. That is no error, so nothing but rows is printed."""

from __future__ import annotations

import json
import subprocess
import sys

from kafscale.wire.records import Record
from lakes import World

QUERY = """
import json, sys
from kafscale_spark.session import local
session = local("early")
rows = session.read.format("kafscale").options(**json.loads(sys.argv[1])).load()
rows.select("headers", "value").where("value is not null").show(3)
"""


async def test_a_limit_prints_rows_and_no_traceback(world: World) -> None:
    """In a process of its own, because Spark's workers write to the error stream that Spark has started with. There are
    more records than the socket to Spark holds."""
    (log,) = await world.topic("orders")
    for _ in range(8):
        await log.append([Record(timestamp=1, key=None, value=b"x" * 1_000) for _ in range(4_000)])
    options = json.dumps(world.options | {"subscribe": "orders"})
    done = subprocess.run(
        [sys.executable, "-c", QUERY, options], capture_output=True, text=True, timeout=300, check=True
    )
    assert "only showing top 3 rows" in done.stdout
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
