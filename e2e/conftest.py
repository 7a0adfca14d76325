"""End-to-end tests start real processes; nothing here imports a service, but for the settings that the laws of the
manifests are about.

`make e2e` runs them in several processes, file by file. The longest files begin, so that no process ends with one of
them while the others have nothing left; each process has ports of its own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from operator import itemgetter
from pathlib import Path

import pytest
from kafscale.runtime.ports import SHARE

pytest.register_assert_rewrite("e2e.harness")  # an assert there says what it compared, as one in a test does

from e2e.harness.compose import Compose  # noqa: E402 - after the line above

FILES_SHOWN = 40
SCENARIOS = Path(__file__).parent / "scenarios"
LONGEST = (
    "test_spark_connector",
    "test_damage",
    "test_chaos",
    "test_shared_cache",
    "test_bystander",
    "test_group_members",
    "test_quotas",
    "test_secured_cluster",
    "test_groups",
    "test_clients",
    "test_doc_commands",
    "test_tutorial",
    "test_rights_table",
    "test_store_rights",
    "test_kafka_tools",
    "test_command",
    "test_spark_jobs",
    "test_old_clients",
    "test_rolling_restart",
    "test_bundle_crashes",
    "test_answers",
    "test_outages",
    "test_quickstart",
    "test_sql",
    "test_scans_across_settling",
    "test_bundles_and_topics",
)
"""The first is the longest; those that are not here take less than any of them."""


def pytest_configure() -> None:
    os.environ.setdefault("KAFSCALE_CONSOLE", "0")  # each `kafscale up` would want its port
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        number = int(worker.removeprefix("gw"))
        os.environ[SHARE] = f"{number}/{os.environ['PYTEST_XDIST_WORKER_COUNT']}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {SCENARIOS / f"{name}.py": place for place, name in enumerate(LONGEST)}
    assert all(path.exists() for path in rank), "a file of LONGEST is gone"
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its containers have written, and not only that one of them is not well."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Compose):
                report.sections.append((f"containers of {name}", value.stories(sick_only=False)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The files that took longest, with their seconds: what LONGEST should say, and where the gate's time goes."""
    seconds = defaultdict[str, float](float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.location[0]] += report.duration
    terminalreporter.section("seconds of the longest files")
    for path, taken in sorted(seconds.items(), key=itemgetter(1), reverse=True)[:FILES_SHOWN]:
        terminalreporter.write_line(f"{taken:7.0f}  {path}")
