"""Whose settings a job has: its submitter's under spark-submit, else its own; never two tries of a task at once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kafscale_spark import session as sessions
from kafscale_spark.session import SUBMITTED, for_job

Conf = dict[str, str]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Conf]:
    """The settings of each session that would have begun."""
    found: list[Conf] = []
    monkeypatch.delenv(SUBMITTED, raising=False)

    def session(_: str, conf: Mapping[str, str]) -> None:
        found.append({**sessions.ALWAYS, **conf})

    monkeypatch.setattr(sessions, "session", session)
    return found


def test_a_job_of_this_machine_takes_all_cores_on_loopback(begun: list[Conf]) -> None:
    for_job("small")
    for_job("large", large=True)
    for conf in begun:
        assert conf["spark.master"] == "local[*]"
        assert conf["spark.driver.host"] == conf["spark.driver.bindAddress"] == "127.0.0.1"
        assert conf["spark.speculation"] == "false"
    small, large = begun
    assert "TieredStopAtLevel=1" in small["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel=1" not in large["spark.driver.extraJavaOptions"]


def test_a_submitted_job_leaves_its_submitters_settings_but_is_never_run_twice_at_once(
    begun: list[Conf], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SUBMITTED, "12345")
    for_job("large", large=True)
    assert begun == [{**sessions.ALWAYS, "spark.speculation": "false"}]
