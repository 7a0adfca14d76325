"""SIGTERM ends the programs that a container runs as its first process, also while they wait for a store or an etcd.

A process that ends by the signal itself has not handled it, and Linux does not deliver such a signal to the first
process of a container.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafscale.runtime.one_job import STOPPED_EXIT_CODE

STARTED_TIMEOUT_S = 60
STOPPED_TIMEOUT_S = 20.0


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A port where connections are accepted and nothing is answered."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(STARTED_TIMEOUT_S)
        yield server


@pytest.mark.parametrize("module", ["kafscale.runtime.create_bucket", "kafscale.upkeep.backup"])
def test_a_program_that_waits_ends_at_sigterm(module: str, silent: socket.socket) -> None:
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    settings = {
        "KAFSCALE_OBJECT_STORE": "s3",
        "KAFSCALE_S3_ENDPOINT": f"http://{address}",
        "KAFSCALE_S3_BUCKET": "records",
        "KAFSCALE_S3_ACCESS_KEY_ID": "key",
        "KAFSCALE_S3_SECRET_ACCESS_KEY": "secret",
        "KAFSCALE_ETCD_ENDPOINTS": f"http://{address}",
    }
    process = subprocess.Popen([sys.executable, "-m", module], env={**os.environ, **settings})
    try:
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOPPED_TIMEOUT_S) == STOPPED_EXIT_CODE
    finally:
        process.kill()
        process.wait()
