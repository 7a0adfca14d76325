"""What every job's program has: where its answer goes, and how it ends that cannot do its work.

Trouble of the world is told in a sentence of whoever found it, and not with the JVM's stack; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafscale.lake.export.plan import ExportRefused
from kafscale.lake.heads import CorruptSegment
from kafscale.storage.etcd import EtcdError
from kafscale.storage.objects import StoreError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from kafscale_spark.java import NoJava
from kafscale_spark.options import BadOption
from kafscale_spark.spans import DataLoss

_RAISED: Final = re.compile(r"^\s*kafscale\S*: (.+)$", re.MULTILINE)
"""The last line of a traceback of our own, which Spark hands over as text."""
_PLAN: Final = re.compile(r";\n|\n\nJVM stacktrace")
"""What Spark puts behind its sentence: the query's plan, the JVM's stack."""
TROUBLE: Final = (NoJava, BadOption, DataLoss, ExportRefused, CorruptSegment, EtcdError, StoreError, OSError)


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answer", type=Path, help="write what was found here, for a program")
    return parser


def notice(line: str) -> None:
    """For people; what is printed besides is rows."""
    print(line, file=sys.stderr)


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
