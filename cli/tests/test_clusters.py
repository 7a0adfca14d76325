"""Commands that read etcd say the same sentence when it is away, whichever they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafscale.cli.__main__ import app
from kafscale.operations import clusters
from kafscale.operations.datadir import DataDir, Endpoints
from kafscale.runtime.ports import free_port
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import read_settings
from typer.testing import CliRunner

COMMANDS = ["status", "fsck", "lag", "retention apply --dry-run", "orphans --yes"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "ETCD_PAUSE_S", 0.01)


def sentence(line: str, **env: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, line.split(), env=env)
    return result.exit_code, result.stderr.strip()


@pytest.fixture
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes three seconds."""
    monkeypatch.setattr(clusters, "ETCD_TRIES", 1)


@pytest.mark.usefixtures("_one_try")
@pytest.mark.parametrize("line", COMMANDS)
def test_an_etcd_that_is_away_is_named_with_what_to_do(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{free_port()}"
    env = {"KAFSCALE_ETCD_ENDPOINTS": url, "KAFSCALE_OBJECT_DIR": str(tmp_path)}
    said = f"kafscale: etcd at {url} does not answer; start etcd, or name a running one in KAFSCALE_ETCD_ENDPOINTS"
    assert sentence(line, **env) == (1, said)


@pytest.mark.parametrize(
    ("etcd", "hinted"), [({}, True), ({"etcd_endpoints": "http://10.0.0.1:2379"}, False)]
)
def test_a_command_that_names_no_cluster_hears_of_data_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etcd: dict[str, str], hinted: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(clusters.ETCD_VARIABLE, raising=False)
    hint = clusters._or_directory(read_settings(ServiceSettings, dict[str, object](etcd)))
    assert ("with --data-dir: no cluster runs on ./data" in hint) == hinted


@pytest.mark.usefixtures("_one_try")
def test_an_etcd_of_a_running_data_directory_that_is_away(tmp_path: Path) -> None:
    data, url = DataDir(tmp_path), f"http://127.0.0.1:{free_port()}"
    data.acquire()
    try:
        data.publish(
            Endpoints(bootstrap_servers="x:1", etcd=url, namespace="default", object_dir=str(tmp_path), pid=1)
        )
        for line in ("status", "fsck"):
            code, said = sentence(f"{line} --data-dir {tmp_path}")
            assert (code, f"etcd at {url} does not answer" in said) == (1, True), said
    finally:
        data.release()


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("status --data-dir {0}", 1, "no cluster runs on {0}; start it with `kafscale up --data-dir {0}`"),
        ("fsck --data-dir {0}", 1, "{0} is not a data directory of `kafscale up`: it has no folder etcd/"),
        ("status --etcd ftp://x", 2, "KAFSCALE_ETCD_ENDPOINTS='ftp://x'"),
        ("status --watch --output json", 2, "--watch shows tables only"),
    ],
)
def test_what_names_no_cluster_is_a_sentence(line: str, code: int, said: str, tmp_path: Path) -> None:
    found, told = sentence(line.format(tmp_path))
    assert (found, said.format(tmp_path) in told) == (code, True), told


@pytest.mark.parametrize("line", [*COMMANDS, "dump s3://bucket/a.kfs"])
def test_a_bad_namespace_of_the_environment_is_told_as_any_bad_setting(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"KAFSCALE_ETCD_ENDPOINTS": "x:1", "KAFSCALE_NAMESPACE": "Bad Name!"}
    code, told = sentence(line, **env)
    said = "kafscale: KAFSCALE_NAMESPACE='Bad Name!': 'Bad Name!' cannot be a namespace: use 1 to 100 letters"
    assert (code, told.startswith(said), len(told.splitlines())) == (2, True, 1), told


def test_a_bad_setting_beside_a_data_directory_is_a_sentence_too(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.acquire()
    try:
        data.publish(
            Endpoints(bootstrap_servers="x:1", etcd="x:2", namespace="default", object_dir="x", pid=1)
        )
        code, told = sentence(f"fsck --data-dir {tmp_path}", KAFSCALE_CACHE_BYTES="many")
    finally:
        data.release()
    assert (code, told.startswith("kafscale: KAFSCALE_CACHE_BYTES='many'")) == (2, True), told
