"""What every job's program has: where its answer goes, and how it ends that cannot do its work.

Trouble of the world is told in a sentence of whoever found it, and not with the JVM's stack; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kafscale.lake.export.plan import ExportRefused
from kafscale.lake.heads import CorruptSegment
from kafscale.lake.lag.checkpoints import NoCheckpoint
from kafscale.lake.retention.apply import GRACE_S
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.objects import StoreError
from kafscale.storage.schema import UnreadableValue
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame

from kafscale_spark.java import NoJava
from kafscale_spark.options import BadOption
from kafscale_spark.spans import DataLoss

ROWS_SHOWN: Final = 1_000
_RAISED: Final = re.compile(r"^\s*kafscale\S*: (.+)$", re.MULTILINE)
"""The last line of a traceback of our own, which Spark hands over as text."""
_PLAN: Final = re.compile(r";\n|\n\nJVM stacktrace")
"""What Spark puts behind its sentence: the query's plan, the JVM's stack."""
TROUBLE: Final = (
    *(NoJava, BadOption, DataLoss, ExportRefused, NoCheckpoint, CorruptSegment, UnreadableValue),
    *(EtcdError, StoreError, OSError),
)


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", type=Path, help="write what was found here, for a program")
    return parser


def add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", action="append", help="only this one; may be repeated")
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")


def add_grace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--grace-s", type=float, default=GRACE_S, help="for reads under way, before objects are deleted"
    )


def positive(text: str) -> int:
    """Of an argument; raises argparse's error."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def show(rows: DataFrame) -> None:
    rows.show(ROWS_SHOWN, truncate=False)


def notice(line: str) -> None:
    """For people; what is printed besides is rows."""
    print(line, file=sys.stderr)


def trouble(missed: Mapping[str, str], failed: int) -> None:
    """What was left undone is told, and the exit code is 1: whoever schedules the job sees it."""
    for place, why in missed.items():
        notice(f"{place} was passed over: {why}")
    if failed:
        notice(f"{failed} objects could not be deleted; the next run tries again")
    if missed or failed:
        sys.exit(1)


def ended(main: Callable[[], None]) -> None:
    # Of a query that is wrong it would tell what is told here, with the JVM's stack.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        main()
    except TROUBLE as trouble:
        sys.exit(str(trouble))
    except PySparkException as trouble:
        sys.exit(told(str(trouble)))


def told(words: str) -> str:
    """What is of use to a person in what Spark says."""
    found = _RAISED.findall(words)
    return found[-1] if found else _PLAN.split(words)[0].strip()
