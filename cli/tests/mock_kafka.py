"""The command, run at a Kafka in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
from kafscale.cli.__main__ import app
from kafscale.testkit.mock_kafka import mock_broker
from typer.testing import CliRunner, Result


@contextmanager
def mock_kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockKafka]:
    monkeypatch.delenv("KAFSCALE_COMMAND_CONFIG", raising=False)
    with mock_broker(monkeypatch) as bootstrap:
        yield MockKafka(bootstrap)


class MockKafka:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, line: str | Iterable[str], stdin: bytes = b"") -> Result:
        words = line.split() if isinstance(line, str) else list(line)
        return CliRunner().invoke(app, [*words, "-b", self.bootstrap], input=stdin)

    def ok(self, line: str | Iterable[str], stdin: bytes = b"") -> bytes:
        done = self.run(line, stdin)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout_bytes
