"""`python -m bench.spark_start`: the start cost of Spark in the image of jobs.

Measures from the start of the interpreter to the end of a first small query, in a container: with the default JVM, with
the flags for small work, with the archive of classes, and with both. The variants alternate; the figures are medians.
CPU is that of the JVM alone, and of every process of the container.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

TIMEOUT_S: Final = 600
FLAGS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE: Final = "-XX:SharedArchiveFile=/opt/kafscale/classes.jsa"
WAYS: Final[Mapping[str, tuple[str, str]]] = {
    "the JVM as it comes": ("", ""),
    "flags": (FLAGS, ""),
    "archive": ("", ARCHIVE),
    "flags and archive": (FLAGS, ARCHIVE),
}
JOB: Final = """
import sys
from kafscale_spark.session import local
spark = local("start", conf={"spark.driver.extraJavaOptions": sys.argv[1]})
assert spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499500
"""
# The JVM ends after the Python process that started it, so the measuring process must be the JVM's subreaper.
WATCH: Final = """
import ctypes, json, os, resource, sys, time
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
began = time.monotonic()
job = os.posix_spawn(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[2]], os.environ)
jvm_s = 0.0
while True:
    try:
        pid, status, used = os.wait4(-1, 0)
    except ChildProcessError:
        break
    if pid == job:
        assert status == 0, status
        wall_s = time.monotonic() - began
    else:
        jvm_s += used.ru_utime + used.ru_stime
all_ = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps({"wall_s": wall_s, "jvm_s": jvm_s, "cpu_s": all_.ru_utime + all_.ru_stime}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    wall_s: float
    jvm_s: float
    cpu_s: float


def start(image: str, flags: str, archive: str) -> Start:
    command = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--tmpfs", "/scratch:uid=10001"]
    command += ["--network", "none", "--env", f"SPARK_SUBMIT_OPTS={archive}", "--entrypoint", "python", image]
    done = subprocess.run(
        [*command, "-c", WATCH, JOB, flags], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return Start(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="kafscale-spark")
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    found: dict[str, list[Start]] = {way: [] for way in WAYS}
    for _ in range(args.times):
        for way, (flags, archive) in WAYS.items():
            found[way].append(start(args.image, flags, archive))
            print(way, found[way][-1], flush=True)
    print("\n| | JVM CPU s | CPU s of all | wall s |\n|---|---|---|---|")
    for way, starts in found.items():
        figures = (statistics.median(values) for values in zip(*map(_figures, starts), strict=True))
        print(f"| {way} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")


def _figures(start: Start) -> tuple[float, float, float]:
    return start.jvm_s, start.cpu_s, start.wall_s


if __name__ == "__main__":
    main()
