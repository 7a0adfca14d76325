"""The README's first two minutes, and what goes wrong in them.

Law: the commands of the README work as written; what was produced is there after Ctrl-C and another start;
Ctrl-C drains and ends with code 0; a taken port and a data directory in use are each one sentence.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.cluster import KAFSCALE, Cluster

README = Path(__file__).parent.parent.parent / "README.md"
COMMAND_TIMEOUT_S = 90
SOON_S = 60.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data")
    yield cluster
    cluster.kill()


def readme_commands() -> list[str]:
    """The lines of the README's shell blocks that call `kafscale` on a running system."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "kafscale" in line]


def shell(command: str, cluster: Cluster) -> str:
    """Runs a command of the README with this environment's programs, the test's port and its data; its output."""
    command = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    command = command.replace("--data-dir data", f"--data-dir {cluster.data_dir}")
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        env={**os.environ, "KAFSCALE_BOOTSTRAP_SERVERS": cluster.bootstrap},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def up(*, data_dir: Path, port: int) -> subprocess.CompletedProcess[str]:
    """A further `kafscale up`, which is expected to end by itself."""
    return subprocess.run(
        [*KAFSCALE, "up", "--port", str(port), "--data-dir", str(data_dir)],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def test_the_readmes_record_passes_and_survives_a_restart(cluster: Cluster) -> None:
    produce, consume, sql, lag = readme_commands()
    cluster.start()
    shell(produce, cluster)
    assert shell(consume, cluster) == "hello, world\n"
    assert re.search(r"^ *greetings +1 *$", shell(sql, cluster), re.MULTILINE)
    assert shell(lag, cluster) == "no group has a member or a committed offset\n"
    assert cluster.stop() == 0
    assert cluster.output[-1].strip() == "stopped"
    cluster.start()
    assert shell(consume, cluster) == "hello, world\n"
    shell(produce, cluster)
    assert shell(consume, cluster) == "hello, world\nhello, world\n"
    assert cluster.stop() == 0


def test_consume_with_a_group_goes_on_where_the_group_is(cluster: Cluster) -> None:
    cluster.start()
    consume = ".venv/bin/kafscale consume greetings --group readers --exit"
    shell("printf 'one\\ntwo\\n' | .venv/bin/kafscale produce greetings", cluster)
    assert shell(f"{consume} --count 1", cluster) == "one\n"
    assert shell(consume, cluster) == "two\n"
    shell(readme_commands()[0], cluster)
    assert shell(consume, cluster) == "hello, world\n"
    assert shell(consume, cluster) == ""
    assert cluster.stop() == 0


def test_services_log_nothing_but_json(cluster: Cluster) -> None:
    """So nothing prints around the log: neither a library's complaint nor a warning of Python."""
    cluster.start()
    shell(readme_commands()[0], cluster)
    assert cluster.stop() == 0
    for log in sorted((cluster.data_dir / "run" / "log").glob("*-1.log")):
        lines = log.read_text().splitlines()
        assert lines, log.name
        assert [line for line in lines if not line.startswith("{")] == [], log.name


def test_ctrl_c_leaves_no_process_behind(cluster: Cluster) -> None:
    cluster.start()
    pids = [pid for role in ("etcd", "produce", "frontdoor") for pid in cluster.pids(role)]
    assert len(pids) == 3
    assert cluster.stop() == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()] == []


def test_ctrl_c_while_it_starts_ends_it_as_well(cluster: Cluster) -> None:
    cluster.launch()
    cluster.wait_for("etcd serves on")
    begin = time.monotonic()
    assert cluster.stop() == 0
    assert time.monotonic() - begin < SOON_S
    assert cluster.output[-1].strip() == "stopped"


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = up(data_dir=tmp_path / "data", port=port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is in use by another program" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_data_directory_in_use_is_a_sentence(cluster: Cluster) -> None:
    cluster.start()
    done = up(data_dir=cluster.data_dir, port=cluster.port + 1)
    assert done.returncode == 1
    assert "is in use by another `kafscale up` (process " in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    shell(readme_commands()[0], cluster)  # and the one that runs is not disturbed


def test_a_service_that_dies_is_started_again_and_said(cluster: Cluster) -> None:
    cluster.start()
    shell(readme_commands()[0], cluster)
    for role in ("frontdoor", "produce", "fetch", "coordinator", "admin", "etcd"):
        (pid,) = cluster.pids(role)
        os.kill(pid, 9)
        cluster.wait_for(f"{role}{'' if role == 'etcd' else '-1'} ended with code -9; starting it again")
        shell(readme_commands()[0], cluster)
    assert shell(readme_commands()[1], cluster) == "hello, world\n" * 7
    assert cluster.stop() == 0
