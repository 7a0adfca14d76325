"""SQL over a cluster's tables: `spark-submit sql.py "select …"`. The answer is printed, or written as an Arrow file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from kafscale.lake.sources import TABLES
from pyspark.sql import SparkSession

from kafscale_spark.jobs.program import ROWS_SHOWN, arguments, job_session, run


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("text", help=f"one query over {', '.join(TABLES)}")
    parser.add_argument("--isolation", default="read_committed")
    args = parser.parse_args(argv)
    with job_session("sql", large=True) as spark:
        name_tables(spark, args.text, isolation=args.isolation)
        answer = spark.sql(args.text)
        if args.answer is None:
            answer.show(ROWS_SHOWN, truncate=False)
        else:
            write(answer.toArrow(), args.answer)


def name_tables(spark: SparkSession, text: str, **options: str) -> None:
    """Creates views only for the tables that the query may name, because each view starts a process."""
    for name in TABLES:
        if re.search(rf"\b{name}\b", text, re.IGNORECASE):
            table = spark.read.format("kafscale").option("table", name).options(**options).load()
            table.createOrReplaceTempView(name)


def write(answer: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, answer.schema) as writer:
        writer.write_table(answer)


if __name__ == "__main__":
    run(main)
