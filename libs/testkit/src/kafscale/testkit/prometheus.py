"""A real Prometheus for tests, on a free loopback port: it scrapes, answers queries and evaluates alerts.

The program is the one on PATH, or Debian's package unpacked into a folder.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError, URLError

from kafscale.runtime.debian_packages import keep, unpacked
from kafscale.runtime.ports import free_port
from kafscale.testkit.seaweed import dying_with_parent

READY_TIMEOUT_S: Final = 60.0
CALL_TIMEOUT_S: Final = 30.0
INTERVAL: Final = "1s"
_POLL_S: Final = 0.05


class PrometheusFailed(Exception):
    """Prometheus ended, did not answer in time, or refused a query; the message says which."""


def find_prometheus(program: str = "prometheus") -> Path:
    """`prometheus` or `promtool`; fetched once per user when the machine has none. Raises NotFetched."""
    found = shutil.which(program)
    if found is not None:
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kafscale" / "tools"
    home = cache / "prometheus"
    if not home.is_dir():
        logging.getLogger(__name__).warning("%s is not on PATH; unpacking Debian's into %s", program, home)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
            keep(unpacked("prometheus", Path(scratch)), home)
    return home / "usr/bin" / program


class PrometheusServer:
    """Scrapes `targets`, addresses by the name of their job, each second; `rules` are files of rules."""

    def __init__(
        self, folder: Path, targets: Mapping[str, Sequence[str]], rules: Sequence[Path] = ()
    ) -> None:
        self._folder = folder
        self._targets = targets
        self._rules = rules
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.yml"
        config.write_text(json.dumps(self._config()))  # YAML as well
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *dying_with_parent(),
                    str(find_prometheus()),
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The current instant vector: `metric` and `value` of each series. Raises PrometheusFailed."""
        answer = self._ask("query", query=expr)
        result: list[dict[str, Any]] = answer["result"]
        return result

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Alerting rules by name: `state`, `health`, `lastError`. `health` is unknown before the first evaluation."""
        groups = self._ask("rules", type="alert")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def _config(self) -> dict[str, Any]:
        return {
            "global": {
                "scrape_interval": INTERVAL,
                "scrape_timeout": INTERVAL,
                "evaluation_interval": INTERVAL,
            },
            "rule_files": [str(path) for path in self._rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in self._targets.items()
            ],
        }

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=CALL_TIMEOUT_S) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except HTTPError as error:
            raise PrometheusFailed(f"{parameters}: {error.read().decode(errors='replace')}") from error

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._is_ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                raise PrometheusFailed(f"it does not serve:\n{(self._folder / 'log').read_text()[-3000:]}")
            time.sleep(_POLL_S)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=1.0) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False
