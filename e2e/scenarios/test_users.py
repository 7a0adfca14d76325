"""Users of a cluster of real processes, from before its first start on, with the `kafscale` command.

Laws: the first admin exists before the first start. The file of first users creates users once, and never changes one.
No password appears in a log, in an answer or in the arguments of a process.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafscale.storage.access_keys import AccessKeys

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.damage import Scene

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
ADMINS, SPARKS, CHANGED = "admins-password", "sparks-password", "another-password"
FIRST_USERS = f"# first users\nadmin:{CHANGED}\nspark:{SPARKS}\n"
COMMAND_TIMEOUT_S = 120.0

pytestmark = pytest.mark.timeout(300)


def users(cluster: Cluster, line: str, *, password: str | None = None) -> subprocess.CompletedProcess[str]:
    """`kafscale users …` on the cluster's data directory."""
    given = [] if password is None else ["--password-file", "-"]
    return subprocess.run(
        [*KAFSCALE, "users", *line.split(), "--data-dir", str(cluster.data_dir), *given],
        input=password,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def done(cluster: Cluster, line: str, *, password: str | None = None) -> str:
    answer = users(cluster, line, password=password)
    assert answer.returncode == 0, (line, answer.stdout, answer.stderr)
    return answer.stdout + answer.stderr


def refused(cluster: Cluster, line: str, *, password: str | None = None) -> str:
    answer = users(cluster, line, password=password)
    assert (answer.returncode, answer.stdout) == (1, ""), (line, answer.stdout, answer.stderr)
    return answer.stderr


def listed(cluster: Cluster) -> set[tuple[str, str, int]]:
    rows = json.loads(done(cluster, "list --output json"))
    return {(row["user"], row["mechanism"], row["iterations"]) for row in rows}


def both(user: str, iterations: int = 4_096) -> set[tuple[str, str, int]]:
    return {(user, SHA_256, iterations), (user, SHA_512, iterations)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("users")
    file = folder / "first-users"
    file.write_text(FIRST_USERS)
    cluster = Cluster(data_dir=folder / "data", env={"KAFSCALE_BOOTSTRAP_USERS_FILE": str(file)})
    said = done(cluster, "add admin --etcd --iterations 8192", password=ADMINS)
    assert "created user 'admin' with SCRAM-SHA-256 and SCRAM-SHA-512" in said
    cluster.start()
    yield cluster
    cluster.kill()


def logs(cluster: Cluster) -> str:
    return "".join(path.read_text() for path in Path(cluster.data_dir / "run" / "log").glob("*.log"))


def test_a_user_lives_through_all_commands_and_a_restart(cluster: Cluster) -> None:
    first = both("admin", 8_192) | both("spark")
    assert listed(cluster) == first
    assert "created user 'alice' with SCRAM-SHA-512" in done(
        cluster, "add alice --mechanism scram-sha-512", password=f"{ADMINS}\n"
    )
    assert "exists already" in refused(cluster, "add alice", password=ADMINS)
    assert "exists already" in refused(cluster, "add alice --etcd", password=ADMINS)
    assert "for SCRAM-SHA-512" in done(cluster, "passwd alice --iterations 5000", password=CHANGED)
    assert listed(cluster) == first | {("alice", SHA_512, 5_000)}
    assert "has no password" in refused(cluster, "passwd nobody", password=CHANGED)
    assert "does not exist" in refused(cluster, "remove nobody")
    assert "removed SCRAM-SHA-256 of user 'spark'" in done(cluster, "remove spark -m SCRAM-SHA-256")
    assert "removed SCRAM-SHA-512 of user 'alice'" in done(cluster, "remove alice")
    left = both("admin", 8_192) | {("spark", SHA_512, 4_096)}
    assert listed(cluster) == left
    assert cluster.stop() == 0
    cluster.start()
    assert listed(cluster) == left
    said = logs(cluster)
    assert "user created from the file of first users" in said
    for secret in (ADMINS, SPARKS, CHANGED):
        assert secret not in said


def test_a_credential_that_cannot_be_read_is_repaired_with_etcd(cluster: Cluster) -> None:
    done(cluster, "add broken -m SCRAM-SHA-256", password=ADMINS)
    scene = Scene(cluster)
    scene.put(AccessKeys(scene.keys).users + b"broken/SCRAM-SHA-256", b"\xff\xff")
    for line in ("remove broken", "passwd broken", "add broken"):
        password = None if line.startswith("remove") else CHANGED
        assert "KAFKA_STORAGE_ERROR" in refused(cluster, line, password=password)
    answer = users(cluster, "list --output json")
    assert answer.returncode == 1
    assert "user 'broken'" in answer.stderr
    assert {row["user"] for row in json.loads(answer.stdout)} == {"admin", "spark"}
    assert "broken" in done(cluster, "passwd broken --etcd", password=CHANGED)
    assert ("broken", SHA_256, 4_096) in listed(cluster)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("add alice", "no terminal to ask for the password"),
        ("add alice --password-file /nowhere", "No such file"),
        ("add alice --iterations 4095", "iterations"),
        ("add alice --mechanism PLAIN", "PLAIN"),
        ("add alice --namespace other --password-file /nowhere", "--namespace is for --etcd"),
    ],
)
def test_what_was_written_wrongly_ends_with_2(cluster: Cluster, line: str, sentence: str) -> None:
    answer = users(cluster, line)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert sentence in answer.stderr


def test_an_empty_password_is_refused(cluster: Cluster) -> None:
    answer = users(cluster, "add alice", password="\n")
    assert answer.returncode == 2
    assert "the password is empty" in answer.stderr
