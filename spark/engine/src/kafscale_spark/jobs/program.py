"""What every job's program shares: arguments, session, output, and exit code.

An external failure ends the job with one sentence, without the JVM's stack trace, and with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from kafscale.lake.export.plan import ExportRefused
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.lag.checkpoints import NoCheckpoint
from kafscale.lake.retention.apply import GRACE_S
from kafscale.lake.unknown import UnknownName
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.objects import StoreError
from kafscale.storage.schema import UnreadableValue
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from kafscale_spark.java import NoJava
from kafscale_spark.options import BadOption
from kafscale_spark.session import for_job
from kafscale_spark.spans import DataLoss

ROWS_SHOWN: Final = 1_000
_RAISED: Final = re.compile(r"^\s*kafscale\S*: (.+)$", re.MULTILINE)
"""The last line of a traceback of KafScale's own, which Spark passes on as text."""
_PLAN: Final = re.compile(r";\n|\n\nJVM stacktrace")
"""What Spark adds after its sentence: the query's plan, the JVM's stack trace."""
TROUBLE: Final = (
    *(NoJava, BadOption, UnknownName, DataLoss, ExportRefused, NoCheckpoint, CorruptSegment, UnreadableValue),
    *(EtcdError, StoreError, OSError),
)


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", type=Path, help="write the result as JSON to this file, for a program")
    return parser


def add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", action="append", help="only this one; may be repeated")


def add_scope(parser: argparse.ArgumentParser) -> None:
    """The arguments of a job that changes topics. A scheduler starts it, so nobody is asked."""
    add_topics(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    parser.add_argument(
        "--grace-s",
        type=float,
        default=GRACE_S,
        help="seconds for reads in flight before objects are deleted",
    )


def positive(text: str) -> int:
    """The type of an argument. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


@contextmanager
def job_session(name: str, *, large: bool = False) -> Iterator[SparkSession]:
    """Stopped at the end, also after a failure."""
    spark = for_job(f"kafscale {name}", large=large)
    try:
        yield spark
    finally:
        spark.stop()


def answered(answer: Path | None, found: object) -> bool:
    """Writes the result to the file of `--answer`, if there is one. Raises OSError."""
    if answer is not None:
        answer.write_text(json.dumps(found))
    return answer is not None


def show(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    spark.createDataFrame(pa.Table.from_pylist(rows, schema)).show(ROWS_SHOWN, truncate=False)


def notice(line: str) -> None:
    """A line for people, to stderr. Stdout has only rows."""
    print(line, file=sys.stderr)


def trouble(missed: Mapping[str, str], failed: int) -> None:
    """Reports what was not done, and exits with code 1, so that the scheduler sees it."""
    for partition, why in missed.items():
        notice(f"{partition} was skipped: {why}")
    if failed:
        notice(f"{failed} objects could not be deleted; the next run tries again")
    if missed or failed:
        sys.exit(1)


def run(main: Callable[[], None]) -> None:
    # This logger would repeat the failure of a query with the JVM's stack trace.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        main()
    except TROUBLE as trouble:
        sys.exit(str(trouble))
    except PySparkException as trouble:
        sys.exit(reason_of(str(trouble)))


def reason_of(words: str) -> str:
    """The readable sentence in an error text of Spark."""
    found = _RAISED.findall(words)
    return found[-1] if found else _PLAN.split(words)[0].strip()
