"""Plants known mistakes, one at a time, and sees that the tests catch each: `make mutants`.

A mutant is a replacement in one source file. It is planted in a copy of its package, which shadows
the real one for the tests named with it; the checkout is never touched. A mutant that survives
means a law without teeth: sharpen the test, or delete the line that nobody misses. The ablations of
the model-checked protocol are not replacements but whole worlds (services/produce/tests/log/
writer_flaws.py), and run first. The mistakes of groups, slots and their routes are data, in
mutants_*.toml.

    tools/mutants.py            all of them
    tools/mutants.py producers  those whose name or file holds the word
    tools/mutants.py --fit      only whether each can still be planted; part of `make check`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = "services/produce/tests/log"
PRODUCERS = f"{TESTS}/test_producers.py"
BATCHES = f"{TESTS}/test_batches.py"
RESOLVE = f"{TESTS}/test_log_resolve.py"
ABLATIONS = f"{TESTS}/test_writer_ablations.py"
WRITER = " ".join(f"{TESTS}/test_writer{part}.py" for part in ("", "_trouble", "_checkpoints"))
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before` stands exactly once in `file`, which lies below `source` ({source}/{package}/…)."""

    name: str
    file: str
    before: str
    after: str
    tests: str
    source: str = "services/produce/src"
    package: str = "kafscale/produce"

    @property
    def path(self) -> str:
        return f"{self.package}/{self.file}"


def log(name: str, file: str, before: str, after: str, tests: str = WRITER) -> Mutant:
    return Mutant(name, f"log/{file}", before, after, tests)


MUTANTS = (
    log("older producer epochs pass", "producers.py", "if epoch < newest.epoch:", "if False:", PRODUCERS),
    log(
        "a new epoch starts anywhere",
        "producers.py",
        "return ErrorCode.NONE if first_seq == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER",
        "return ErrorCode.NONE",
        PRODUCERS,
    ),
    log(
        "sequences do not wrap",
        "producers.py",
        "if first_seq == (newest.last_seq + 1) & SEQUENCE_MASK:",
        "if first_seq == newest.last_seq + 1:",
        PRODUCERS,
    ),
    log(
        "a snapshot holds what is in flight",
        "producers.py",
        "if batch.base < below]",
        "if batch.base >= 0]",
        PRODUCERS,
    ),
    log(
        "batches in flight push committed ones out",
        "producers.py",
        "while len(batches) > BATCHES_MAX and batches[BATCHES_MAX].base < committed:",
        "while len(batches) > BATCHES_MAX:",
        PRODUCERS,
    ),
    log(
        "what was never seen is called written",
        "producers.py",
        "if _at_or_before(producer.first_seq, first_seq) and",
        "if",
        PRODUCERS,
    ),
    log(
        "replay takes in what the snapshot covers",
        "producers.py",
        " or header.base_offset < self._covered:",
        ":",
        PRODUCERS,
    ),
    log(
        "a producer heard of since is forgotten",
        "producers.py",
        "if producer_id not in known and producer.batches[-1].base < kept.offset",
        "if producer_id not in known",
        PRODUCERS,
    ),
    log("the attempt is no evidence", "resolve.py", "current.attempt == sent.attempt:", "False:", RESOLVE),
    log("a clean refusal is doubted", "resolve.py", "    if not ambiguous:\n", "    if False:\n", RESOLVE),
    log(
        "a log that ends before the commit may hold it",
        "resolve.py",
        "current.next <= base",
        "current.next < base",
        RESOLVE,
    ),
    log("a pruned history is complete", "resolve.py", "    if not pruned:\n", "    if True:\n", RESOLVE),
    log(
        "the epoch's end does not matter",
        "resolve.py",
        "start.start <= base and end <= epoch_end",
        "start.start <= base",
        RESOLVE,
    ),
    log(
        "meta moving is taken for a fence",
        "resolve.py",
        "    if revision == sent_over:\n",
        "    if False:\n",
        RESOLVE,
    ),
    log(
        "an equal epoch is an older one",
        "uploading.py",
        "seen.epoch < self._epoch",
        "seen.epoch <= self._epoch",
    ),
    log("an orphan is not matched", "uploading.py", "IfMatch(seen.etag)", "IfAbsent()"),
    log(
        "the tail may overflow",
        "uploading.py",
        "while self.flights and len(taken) < room and",
        "while self.flights and",
    ),
    log("a failing store is waited for", "uploading.py", ">= limits.upload_give_up_ms", ">= 1 << 60"),
    log(
        "retries do not back off",
        "uploading.py",
        "limits.retry_first_ms << min(",
        "limits.retry_first_ms + min(",
    ),
    log("all sealed segments upload at once", "uploading.py", "if position >= pipeline_max:", "if False:"),
    log("uploaded bytes stay counted", "uploading.py", "self.bytes_held -= flight.bytes", "pass"),
    log(
        "indexes of all epochs are equal",
        "flight.py",
        "_STAMP.pack(epoch & 0xFFFF)",
        "_STAMP.pack(0)",
        f"{ABLATIONS} -k UNSTAMPED or sound or search",
    ),
    log("a checkpoint trims nothing", "ledger.py", "tail=self.head.tail[moved:]", "tail=self.head.tail"),
    log(
        "a snapshot claims what it does not cover",
        "ledger.py",
        "snap_offset=plan.snapshot.offset",
        "snap_offset=self.head.next",
    ),
    log(
        "every commit opens an epoch",
        "ledger.py",
        "if not epochs or epochs[-1].epoch != head.epoch:",
        "if True:",
    ),
    log("bytes are not counted", "ledger.py", "bytes=head.bytes + sum(", "bytes=0 * sum("),
    log(
        "a gap is called without proof",
        "writer.py",
        "self._doubts.add(Waiter(token, NO_OFFSET, NO_TIMESTAMP, deadline_ms))",
        "self._answers.refuse(token, Rejection(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))",
    ),
    log(
        "a repeat in flight is acknowledged",
        "writer.py",
        "if known.base < self._ledger.head.next:",
        "if True:",
    ),
    log(
        "two transactions at once",
        "writer.py",
        "        if self._ledger.sent is None:\n            self._send_next()",
        "        self._send_next()",
    ),
    log(
        "a deadline is a failure",
        "writer.py",
        "waiters.take_expired(now.mono_ms), ErrorCode.REQUEST_TIMED_OUT",
        "waiters.take_expired(now.mono_ms), ErrorCode.NOT_LEADER_OR_FOLLOWER",
    ),
    log(
        "stepping down forgets the commit that is out",
        "writer.py",
        "State.CLOSING if self._ledger.sent is not None else State.CLOSED",
        "State.CLOSED",
    ),
    log(
        "a hand-over leaves the open buffer behind",
        "writer.py",
        "            if self._intake.open.parts:\n                self._seal(now)\n",
        "",
    ),
    log("a hand-over takes no snapshot", "checkpoints.py", "head.snap_offset >= head.next", "True"),
    log(
        "a failed plan is repeated at once",
        "checkpoints.py",
        "now.mono_ms + limits.checkpoint_retry_ms",
        "now.mono_ms",
    ),
    log(
        "an answer to a dead plan counts",
        "checkpoints.py",
        "        if self._plan is not None and self._plan.number == number:\n            self._ready =",
        "        if self._plan is not None:\n            self._ready =",
    ),
    log(
        "evidence that is gone means failure",
        "answers.py",
        "            else:\n                self.fail(waiters, ErrorCode.REQUEST_TIMED_OUT)",
        "            else:\n                self.fail(waiters, ErrorCode.NOT_LEADER_OR_FOLLOWER)",
    ),
    log(
        "the longest linger does not end",
        "intake.py",
        "return not limits.governed or buffer.granted or overdue",
        "return not limits.governed or buffer.granted",
    ),
    log(
        "nothing gathers until the commit",
        "intake.py",
        "if not under_way:",
        "if True:",
    ),
    log(
        "producers that the commit answered are not waited for",
        "intake.py",
        "(now.mono_ms - self._sealed_ms) // _REGATHER_SHARE",
        "0",
    ),
    log(
        "the append time follows the clock back",
        "intake.py",
        "max([now.wall_ms, *(ms for ms in before if ms <= latest_ms)])",
        "now.wall_ms",
    ),
    log(
        "buffers have no bound",
        "intake.py",
        "if held_bytes + len(record_set) > limits.held_bytes_max:",
        "if False:",
    ),
    log(
        "batches of one set need no order",
        "batches.py",
        "if header.base_sequence != expected:",
        "if False:",
        BATCHES,
    ),
    log(
        "a limit is one byte short",
        "batches.py",
        "if len(batch) > limits.max_message_bytes:",
        "if len(batch) >= limits.max_message_bytes:",
        BATCHES,
    ),
    log(
        "the stamp leaves the checksum",
        "batches.py",
        "_CRC.pack_into(header, _CRC_AT, checksum)",
        "del checksum",
        BATCHES,
    ),
    log(
        "the client's buffer is patched",
        "batches.py",
        "header = bytearray(batch[:HEADER_SIZE])",
        "header = batch[:HEADER_SIZE]",
        BATCHES,
    ),
)


def listed(path: Path) -> list[Mutant]:
    """Those of a file: `laws` are caught by the file's law tests alone, others by the tests they name, or by
    any of the file's."""
    table = tomllib.loads(path.read_text())
    return [
        Mutant(
            name=row["name"],
            file=row["file"],
            before=row["before"],
            after=row["after"],
            tests=row.get("tests") or table["laws" if row.get("laws") else "tests"],
            source=table["source"],
            package=table["package"],
        )
        for row in table["mutant"]
    ]


def misfit(mutant: Mutant) -> str | None:
    """Why it cannot be planted, if the code has moved on under it."""
    found = (ROOT / mutant.source / mutant.path).read_text().count(mutant.before)
    if found == 1:
        return None
    return f"{mutant.name}: {mutant.before!r} stands {found} times in {mutant.path}, not once"


def plant(mutant: Mutant, folder: Path) -> None:
    """A copy of the package under `folder`, with the mistake in it."""
    shutil.copytree(ROOT / mutant.source / mutant.package, folder / mutant.package)
    target = folder / mutant.path
    target.write_text(target.read_text().replace(mutant.before, mutant.after))


def run_tests(tests: str, folder: Path | None = None) -> bool:
    """Whether they pass."""
    environment = dict(os.environ)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    target, _, chosen = tests.partition(" -k ")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not deep",
        *target.split(),
    ]
    command += ["-k", chosen] if chosen else []
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 0


def main(words: list[str]) -> int:
    files = sorted(Path(__file__).parent.glob("mutants_*.toml"))
    known = [*MUTANTS, *(mutant for path in files for mutant in listed(path))]
    misfits = [why for mutant in known if (why := misfit(mutant)) is not None]
    print("".join(f"{why}\n" for why in misfits), end="")
    if misfits or words == ["--fit"]:
        return 1 if misfits else 0
    chosen = [m for m in known if not words or any(word in f"{m.name} {m.file}" for word in words)]
    if not chosen:
        print(f"no mutant has {' or '.join(words)} in its name or file")
        return 2
    if not words:
        print("the ablations of the protocol …", flush=True)
        if not run_tests(ABLATIONS):
            print(f"SURVIVED: see {ABLATIONS}")
            return 1
    survivors = [mutant for mutant in chosen if not is_caught(mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    return 1 if survivors else 0


def is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="kafscale-mutant-") as folder:
        plant(mutant, Path(folder))
        caught = not run_tests(mutant.tests, Path(folder))
    print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.file}: {mutant.name}", flush=True)
    return caught


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
