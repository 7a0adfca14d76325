"""Lines reach standard error in order, and one that takes nothing keeps nobody waiting."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kafscale.runtime.log_writer import LogWriter

DONE_S = 30.0
WAITING_BYTES = 1 << 20
PIPE_BYTES = 64 << 10


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The end to read from, and the one to write to; it holds PIPE_BYTES."""
    ours, theirs = os.pipe()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def read(descriptor: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(descriptor, size - len(found))
    return found


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    ours, theirs = pipe
    writer = LogWriter(theirs)
    lines = [b"line %d\n" % number for number in range(1_000)]
    for line in lines:
        writer.write(line)
    assert read(ours, len(b"".join(lines))) == b"".join(lines)
    assert writer.flush(DONE_S)
    assert writer.dropped_lines == 0


def test_what_a_full_pipe_does_not_take_is_dropped_counted_and_said_when_there_is_room(
    pipe: tuple[int, int],
) -> None:
    ours, theirs = pipe
    said: list[int] = []
    writer = LogWriter(theirs, bytes_max=WAITING_BYTES)
    writer.say_dropped = said.append
    line, count = b"x" * 1_023 + b"\n", 3_000
    for _ in range(count):
        writer.write(line)
    assert not writer.flush(0.0)
    kept = count - writer.dropped_lines
    assert kept * len(line) <= WAITING_BYTES + PIPE_BYTES
    assert read(ours, kept * len(line)) == line * kept
    assert writer.flush(DONE_S)
    writer.write(b"after\n")
    assert read(ours, 6) == b"after\n"
    assert writer.flush(DONE_S)
    assert sum(said) == writer.dropped_lines > 0


def test_a_closed_standard_error_harms_nobody(pipe: tuple[int, int]) -> None:
    spare = os.dup(pipe[1])
    os.close(spare)
    writer = LogWriter(spare)
    writer.write(b"lost\n")
    assert writer.flush(DONE_S)
    assert writer.dropped_lines == 1


BLOCKED = """
import sys, structlog
from kafscale.runtime.logs import WRITER, configure_logs
configure_logs(level="debug", form="json", service="fetch")
log = structlog.get_logger("kafscale.x")
for number in range(20_000):
    log.debug("line", number=number, text="x" * 100)
print(WRITER.dropped_lines, flush=True)
"""


def test_a_process_whose_standard_error_nobody_reads_goes_on_and_says_what_it_dropped() -> None:
    command = [sys.executable, "-c", BLOCKED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        dropped = int(process.stdout.readline())
        lines = [json.loads(line) for line in process.stderr]
        assert process.wait(DONE_S) == 0
    numbers = [line["number"] for line in lines if line["event"] == "line"]
    assert numbers == sorted(numbers)
    assert len(numbers) == 20_000 - dropped
    assert sum(line["lines"] for line in lines if "dropped" in line["event"]) == dropped > 0
