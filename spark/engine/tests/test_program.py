"""How a job reports trouble: in the sentence of the code that found it, with exit code 1."""

from __future__ import annotations

import pytest
from kafscale.lake.export.plan import ExportRefused
from kafscale_spark.jobs import compaction
from kafscale_spark.jobs.program import reason_of, run
from pyspark.errors import AnalysisException

FROM_A_TASK = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "batch.py", line 71, in batches
    async for batch in read(lake, wanted, ask):
kafscale_spark.spans.DataLoss: records 0 to 9 of orders:0 were deleted. Set failOnDataLoss to false
"""
OF_A_PLAN = (
    "[UNRESOLVED] there is no column `nope`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]\n+- View"
)


def test_what_a_task_raised_is_told_without_its_stack() -> None:
    assert reason_of(FROM_A_TASK) == "records 0 to 9 of orders:0 were deleted. Set failOnDataLoss to false"
    assert reason_of("gone\n\nJVM stacktrace:\njava.lang.X\n\tat y") == "gone"


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (ExportRefused("take another folder"), "take another folder"),
        (FileNotFoundError(2, "No such file", "out"), "[Errno 2] No such file: 'out'"),
        (
            AnalysisException(OF_A_PLAN),
            "[UNRESOLVED] there is no column `nope`. SQLSTATE: 42703; line 1 pos 7",
        ),
    ],
)
def test_trouble_of_the_world_ends_a_job_with_a_sentence(trouble: Exception, words: str) -> None:
    def main() -> None:
        raise trouble

    with pytest.raises(SystemExit) as ending:
        run(main)
    assert ending.value.code == words


def test_our_own_mistake_ends_it_with_its_stack() -> None:
    def main() -> None:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError, match="a bug"):
        run(main)


@pytest.mark.parametrize("words", ["0", "-5", "many"])
def test_a_budget_of_nothing_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compaction.main([f"--io-bytes-per-s={words}"])
    assert "is no number above 0" in capsys.readouterr().err
