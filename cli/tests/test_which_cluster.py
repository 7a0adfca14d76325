"""A command reaches the cluster that the user names, or none.

Law: with a data directory that is named, by option or by variable, no command asks another cluster.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from kafscale.cli.__main__ import app
from kafscale.operations.bootstrap import DEFAULT_BOOTSTRAP
from kafscale.operations.datadir import DataDir, Endpoints
from kafscale.runtime.settings import ServiceSettings
from typer.testing import CliRunner, Result

HERE, ELSEWHERE = "here:9092", "elsewhere:9092"
VARIABLES = (
    "KAFSCALE_BOOTSTRAP_SERVERS",
    "KAFSCALE_COMMAND_CONFIG",
    "KAFSCALE_DATA_DIR",
    "KAFSCALE_ETCD_ENDPOINTS",
    "KAFSCALE_PROFILE",
)
LINES: Final[Mapping[str, str]] = {
    "produce": "t",
    "consume": "t",
    "offsets": "t",
    "delete-records": "t --before latest --yes",
    "status": "",
    "brokers": "",
    "cost": "--now",
    "fsck": "",
    "settle": "",
    "etcd-repair": "",
    "topics list": "",
    "topics describe": "t",
    "topics create": "t",
    "topics alter": "t --partitions 2",
    "topics delete": "t --yes",
    "configs describe": "t",
    "configs set": "t retention.ms=1",
    "configs unset": "t retention.ms",
    "groups list": "",
    "groups describe": "g",
    "groups delete": "g --yes",
    "groups reset-offsets": "g --topic t --to earliest --yes",
    "transactions list": "",
    "transactions describe": "--transactional-id x",
    "transactions describe-producers": "--topic t --partition 0",
    "transactions find-hanging": "",
    "transactions abort": "--topic t --partition 0 --start-offset 1 --yes",
    "transactions forceTerminateTransaction": "--transactionalId x --yes",
    "users add": "u --password-file secret",
    "users passwd": "u --password-file secret",
    "users remove": "u",
    "users list": "",
    "acls add": "--allow-principal User:u --operation read --topic t",
    "acls remove": "--topic t",
    "acls list": "",
    "quotas set": "consumer_byte_rate=1 --user u",
    "quotas remove": "--user u",
    "quotas list": "",
    "backup create": "",
    "backup list": "",
    "backup get": "file",
    "lag": "",
    "sql": "select",
    "export": "t --to folder",
    "compact": "--yes",
    "orphans": "--yes",
    "retention what-if": "--retention-ms 1",
    "retention apply": "--yes",
}
"""What each command needs: every command with --data-dir, except `up`, and `console`, which asks when a page does."""


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KAFSCALE_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command and its name."""
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, each in below.items():
        yield from leaves(each, (*path, name))


def takes(option: str) -> set[str]:
    commands = leaves(typer.main.get_command(app))
    return {name for name, each in commands if any(option in one.opts for one in each.params)} - {
        "up",
        "console",
    }


class Asked(Exception):
    """A command is about to connect."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses at which commands ask; each command ends there."""
    found: list[str] = []

    def note(bootstrap: str, _security: object) -> None:
        found.append(bootstrap)
        raise Asked

    def connect(settings: ServiceSettings) -> None:
        found.extend(settings.etcd_endpoints)
        raise Asked

    monkeypatch.setattr("kafscale.client.admin_client.Client", note)
    monkeypatch.setattr("kafscale.operations.clusters.connect_etcd", connect)
    return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A folder on which a cluster runs, as its files say."""
    data = DataDir(tmp_path / "running")
    data.acquire()
    data.publish(
        Endpoints(bootstrap_servers=HERE, etcd="http://here:2379", namespace="n", object_dir="o", pid=1)
    )
    yield data.root
    data.release()


def run(words: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, words.split(), env=dict(env or {}))


def test_every_command_with_a_data_directory_is_looked_at() -> None:
    assert takes("--data-dir") == set(LINES)


def test_a_console_does_not_start_on_a_data_directory_without_a_cluster(asked: list[str]) -> None:
    result = run("console --port 0 --data-dir nothing")
    assert (result.exit_code, asked) == (1, [])
    assert "no cluster runs on nothing" in result.stderr


@pytest.mark.parametrize("command", LINES)
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_data_directory_without_a_cluster_is_an_error_and_no_other_cluster_is_asked(
    command: str, asked: list[str], tmp_path: Path, *, by_variable: bool
) -> None:
    Path("secret").write_text("secret\n")
    words = f"{command} {LINES[command]}"
    if by_variable:
        done = run(words, {"KAFSCALE_DATA_DIR": "nowhere"})
    else:
        done = run(f"{words} --data-dir nowhere", {"KAFSCALE_BOOTSTRAP_SERVERS": ELSEWHERE})
    assert (asked, done.exit_code) == ([], 1), done.output
    assert "nowhere" in done.stderr
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("command", sorted(takes("--bootstrap-server") & set(LINES)))
def test_a_data_directory_on_the_line_comes_before_a_variable_and_a_file(
    command: str, asked: list[str], running: Path
) -> None:
    Path("secret").write_text("secret\n")
    Path("elsewhere.properties").write_text(f"bootstrap.servers={ELSEWHERE}\n")
    words = f"{command} {LINES[command]} --data-dir {running}"
    run(words, {"KAFSCALE_BOOTSTRAP_SERVERS": ELSEWHERE})
    run(f"{words} --command-config elsewhere.properties")
    run(f"{command} {LINES[command]}", {"KAFSCALE_DATA_DIR": str(running)})
    assert asked == [HERE, HERE, HERE]
    both = run(f"{words} -b {ELSEWHERE}")
    assert (both.exit_code, asked) == (2, [HERE] * 3), both.output
    assert "both name a cluster" in both.stderr


def test_an_address_on_the_line_comes_before_a_data_directory_of_the_environment(
    asked: list[str], running: Path
) -> None:
    run(f"topics list -b {ELSEWHERE}", {"KAFSCALE_DATA_DIR": str(running)})
    assert asked == [ELSEWHERE]


@pytest.mark.parametrize("command", sorted(takes("--bootstrap-server") & set(LINES)))
def test_an_address_without_a_port_is_a_mistake_of_the_command_line(command: str, asked: list[str]) -> None:
    Path("secret").write_text("secret\n")
    done = run(f"{command} {LINES[command]} -b here:9092,there")
    assert (asked, done.exit_code) == ([], 2), done.output
    assert "'there' is not host:port, such as 127.0.0.1:9092" in done.stderr


@pytest.mark.parametrize("by_variable", [False, True])
def test_an_ipv6_address_without_brackets_is_shown_with_them(asked: list[str], *, by_variable: bool) -> None:
    done = (
        run("topics list", {"KAFSCALE_BOOTSTRAP_SERVERS": "::1:9193"})
        if by_variable
        else run("topics list -b ::1:9193")
    )
    assert (asked, done.exit_code) == ([], 2), done.output
    assert done.stderr == (
        "kafscale: --bootstrap-server: '::1:9193' is not host:port; an IPv6 address needs brackets, as in [::1]:9193\n"
    )
    run("topics list -b [::1]:9193")
    assert asked == ["[::1]:9193"]


@pytest.mark.parametrize("command", ["up", *LINES])
def test_an_empty_data_directory_is_refused_and_not_the_current_folder(
    command: str, asked: list[str], tmp_path: Path
) -> None:
    """A shell makes one of `--data-dir "$UNSET"`."""
    Path("secret").write_text("secret\n")
    words = [*command.split(), *LINES.get(command, "").split()]
    done = CliRunner().invoke(app, [*words, "--data-dir", ""])
    assert (asked, done.exit_code) == ([], 2), done.output
    assert done.stderr == "kafscale: --data-dir is empty; name a folder, such as --data-dir data\n"
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


@pytest.mark.parametrize("command", ["status", "cost"])
def test_etcd_and_a_data_directory_are_two_clusters(command: str, asked: list[str], running: Path) -> None:
    done = run(f"{command} {LINES[command]} --data-dir {running} --etcd http://elsewhere:2379")
    assert (done.exit_code, asked) == (2, []), done.output
    assert "both name a cluster" in done.stderr


def test_without_any_name_it_is_the_cluster_of_this_folder_or_kafkas_port(
    asked: list[str], running: Path, tmp_path: Path
) -> None:
    run("topics list")
    (tmp_path / "data").symlink_to(running)
    run("topics list")
    assert asked == [DEFAULT_BOOTSTRAP, HERE]


def test_a_cluster_that_is_starting_is_said_to_be_starting(asked: list[str], tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    data.acquire()
    done = run("topics list --data-dir data")
    data.release()
    assert (asked, done.exit_code) == ([], 1)
    assert "the cluster on data is not ready yet" in done.stderr


def test_a_file_in_the_place_of_a_data_directory_is_one_without_a_cluster(
    asked: list[str], tmp_path: Path
) -> None:
    (tmp_path / "data").touch()
    run("topics list")
    assert asked == [DEFAULT_BOOTSTRAP]
    done = run("topics list --data-dir data")
    assert (len(asked), done.exit_code) == (1, 1)
    assert "no cluster runs on data" in done.stderr


@pytest.mark.parametrize("command", ["topics list", "status", "sql select", "fsck"])
def test_a_data_directory_of_another_user_is_one_sentence(
    command: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, whom no permission stops."""
    (tmp_path / "theirs" / "etcd").mkdir(parents=True)
    opened = os.open

    def refuse(path: Any, *words: Any, **more: Any) -> int:
        if "theirs" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *words, **more)

    monkeypatch.setattr("os.open", refuse)
    done = run(f"{command} --data-dir theirs")
    assert (asked, done.exit_code) == ([], 1), done.output
    assert "theirs/run/lock: permission denied" in done.stderr
