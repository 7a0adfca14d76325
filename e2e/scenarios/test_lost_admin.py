"""Admin is away for longer than its lease, as in a slow restart, and its instance is the only one.

Law: no client is harmed by what the front door answers meanwhile. A client whose process ends at a null would take the
test run with it, so each runs in a process of its own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.commands import Commands
from e2e.harness.services import until

CLIENT_S: Final = 60.0
DESCRIBE: Final = """
import sys
from confluent_kafka.admin import AdminClient
client = AdminClient({"bootstrap.servers": sys.argv[1]})
found = client.describe_cluster(request_timeout=30).result()
print(found.cluster_id, len(found.nodes))
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data")
    cluster.start()
    yield cluster
    cluster.kill()


def described(cluster: Cluster) -> list[str]:
    """Id and number of brokers, by librdkafka."""
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.split()


def test_a_client_that_describes_the_cluster_survives_and_learns_its_id(cluster: Cluster) -> None:
    commands = Commands(cluster.data_dir)
    cluster_id = json.loads(commands.ok("status --output json"))["cluster_id"]
    assert described(cluster) == [cluster_id, "1"]
    cluster.signal("admin", signal.SIGSTOP)
    until("the lease of admin is over", lambda: cluster.inside().instances("admin") == [])
    assert described(cluster) == [cluster_id, "1"]
    assert json.loads(commands.ok("brokers --output json"))[0]["broker"] == 1, (
        "the command is such a client, too"
    )
    cluster.signal("admin", signal.SIGCONT)
    until("admin is back", lambda: len(cluster.inside().instances("admin")) == 1)
    commands.ok("produce greetings", stdin="hello\n")
