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
from pathlib import Path

import pytest
from kafscale.runtime.launch import STOPPED_EXIT_CODE

LAUNCH = [sys.executable, "-m", "kafscale.runtime.launch"]
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
    process = subprocess.Popen([*LAUNCH, module], env={**os.environ, **settings})
    try:
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOPPED_TIMEOUT_S) == STOPPED_EXIT_CODE
    finally:
        process.kill()
        process.wait()


def launched(folder: Path, source: str) -> subprocess.Popen[str]:
    """What an image starts, with a module of this source in place of a service, and one argument."""
    (folder / "launched.py").write_text(source)
    return subprocess.Popen(
        [*LAUNCH, "launched", "--an-argument"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_service_that_is_still_being_imported_ends_at_sigterm(tmp_path: Path) -> None:
    with launched(tmp_path, "import time\nprint('begun', flush=True)\ntime.sleep(60)\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOPPED_TIMEOUT_S) == STOPPED_EXIT_CODE


def test_a_launched_module_has_its_arguments_and_its_exit_code(tmp_path: Path) -> None:
    source = "import sys\nprint(__name__, sys.argv[1:])\nsys.exit(3)\n"
    with launched(tmp_path, source) as process:
        assert process.communicate()[0] == "__main__ ['--an-argument']\n"
        assert process.returncode == 3
