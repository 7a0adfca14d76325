"""The commands of the documents, as they stand, on one cluster: each ends with code 0.

Before each page the topics and groups that the documents speak of are made anew. A command that goes on until Ctrl-C
gets Ctrl-C after its first output. A question is answered with y.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.harness.cluster import Cluster
from e2e.harness.doc_blocks import ROOT, RUN_ELSEWHERE, Block, blocks, pages
from e2e.harness.services import until

COMMAND_TIMEOUT_S = 180.0
HEARS_CTRL_C = ("/usr/bin/env", "--default-signal=INT")
"""A test run in the background of a shell ignores SIGINT, and so would all its children."""
TOPICS: Mapping[str, dict[str, str]] = {
    "orders": {},
    "orders-eu": {},
    "customers": {},
    "users": {"cleanup.policy": "compact"},
}
RECORDS = 120
KEPT = {".venv", "data", "query.sql"}
WITH_COMMANDS = [
    page
    for page in pages()
    if str(page.relative_to(ROOT)) not in RUN_ELSEWHERE and any(not block.world for block in blocks(page))
]

pytestmark = pytest.mark.timeout(1_800)


class Terminal:
    """A terminal that answers each question with y, and keeps what was written to it."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        modes = termios.tcgetattr(self.theirs)
        modes[3] &= ~termios.ECHO  # else its own answer would be the first output
        termios.tcsetattr(self.theirs, termios.TCSANOW, modes)
        self.text = b""
        os.write(self.ours, b"y\n")
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        """Linux ends with EIO when the last process has closed the other side."""
        with suppress(OSError):
            while piece := os.read(self.ours, 65_536):
                self.text += piece

    def close(self) -> str:
        """To be called when the processes have ended."""
        os.close(self.theirs)
        self._reading.join()
        os.close(self.ours)
        return self.text.decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Reader:
    """Somebody who types commands, in a folder whose `data` is the cluster's."""

    folder: Path
    cluster: Cluster

    def types(self, command: str, text: str | None = None) -> str:
        """What the command prints on standard output. `text` is its input, else a terminal."""
        endless, terminal = is_endless(command), Terminal()
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write((text or "").encode())
            given.seek(0)
            shell = subprocess.Popen(
                [*HEARS_CTRL_C, "/bin/sh", "-c", command.replace("127.0.0.1:9092", self.cluster.bootstrap)],
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                stdin=terminal.theirs if text is None else given,
                stdout=output,
                stderr=terminal.theirs,
                start_new_session=True,
            )
            try:
                if endless:
                    until(
                        f"`{command}` prints",
                        lambda: bool(terminal.text) or os.fstat(output.fileno()).st_size > 0,
                    )
                    os.killpg(shell.pid, signal.SIGINT)
                code = shell.wait(COMMAND_TIMEOUT_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
                errors = terminal.close()
            output.seek(0)
            said = output.read().decode(errors="replace")
        expected = {0, 130, -signal.SIGINT} if endless else {0}
        assert code in expected, f"{command}\nended with {code}:\n{said}{errors}"
        return said

    def environment(self) -> dict[str, str]:
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            "PATH": programs,
            "HOME": str(self.folder),
            "KAFSCALE_BOOTSTRAP_SERVERS": self.cluster.bootstrap,
        }


def is_endless(command: str) -> bool:
    """Whether it goes on until Ctrl-C."""
    consumes = re.search(r"kafscale consume", command) and not re.search(
        r"--exit|--count|-u |--until", command
    )
    return bool(consumes or re.search(r"--serve|--watch|kafscale up", command))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".venv").symlink_to(Path(sys.prefix))
    (folder / "query.sql").write_text("select count(*) from records\n")
    cluster = Cluster(data_dir=folder / "data", env={"KAFSCALE_BACKUP_EVERY_MS": "3600000"})
    cluster.start()
    yield Reader(folder, cluster)
    assert cluster.stop() == 0
    cluster.kill()


def made_anew(reader: Reader) -> None:
    """The topics, with records that are JSON, and a group that has read some. What pages have written is gone."""
    for path in reader.folder.iterdir():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    address: dict[str, str | int | float | bool] = {"bootstrap.servers": reader.cluster.bootstrap}
    admin = AdminClient(address)
    topics = list(admin.list_topics(timeout=60).topics)
    for future in (admin.delete_topics(topics) if topics else {}).values():
        future.result(60)
    new = [NewTopic(name, 8, config=configs) for name, configs in TOPICS.items()]
    for future in admin.create_topics(new).values():
        future.result(60)
    producer = Producer(address)
    for name in TOPICS:
        for number in range(RECORDS):
            value = json.dumps({"country": "de", "amount": number})
            producer.produce(name, key=f"k{number % 7}", value=value)
    assert producer.flush(60) == 0
    read = [TopicPartition("orders", partition, 1) for partition in range(8)]
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("billing", read)])["billing"].result(60)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_as_they_stand(reader: Reader, page: Path) -> None:
    made_anew(reader)
    for block in blocks(page):
        if not block.world:
            _run(reader, block)


def _run(reader: Reader, block: Block) -> None:
    for command in block.commands():
        if not re.match(r"(make|kafscale) up\b", command):  # the cluster is there already
            reader.types(command)
