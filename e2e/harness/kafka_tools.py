"""Apache Kafka's command line tools, of the versions that operators have, from the jars on Maven Central.

The start of a JVM takes longer than the work of most tools, so one JVM runs many: kafka/Tools.java calls their main
as the scripts do. The console consumer has a separate JVM each time: that of 3.7 never resets its count of printed
records, and one that is a member of a group must continue during other calls.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.harness.apache import KAFKA, kafka_classpath, kafka_version
from e2e.harness.builds import SHORT_LIVED
from e2e.harness.clients import require
from e2e.harness.services import dying_with_parent, until

OLDER = "3.7.2"
VERSIONS = (OLDER, kafka_version())
CALL_TIMEOUT_S = 120.0
JAVA = ("java", "-Xmx256m", *SHORT_LIVED)
HERE_STRING = " <<< "
_TOOLS = "org.apache.kafka.tools"
MAINS: Mapping[str, str] = {
    "kafka-topics": f"{_TOOLS}.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": f"{_TOOLS}.GetOffsetShell",
    "kafka-delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "kafka-log-dirs": f"{_TOOLS}.LogDirsCommand",
    "kafka-broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "kafka-cluster": f"{_TOOLS}.ClusterTool",
    "kafka-leader-election": f"{_TOOLS}.LeaderElectionCommand",
    "kafka-acls": f"{_TOOLS}.AclCommand",
    "kafka-reassign-partitions": f"{_TOOLS}.reassign.ReassignPartitionsCommand",
    "kafka-metadata-quorum": f"{_TOOLS}.MetadataQuorumCommand",
    "kafka-features": f"{_TOOLS}.FeatureCommand",
    "kafka-transactions": f"{_TOOLS}.TransactionsCommand",
    "kafka-console-producer": f"{_TOOLS}.ConsoleProducer",
    "kafka-console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
}
OLDER_MAINS: Mapping[str, str] = {
    **MAINS,
    "kafka-consumer-groups": "kafka.admin.ConsumerGroupCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-cluster": "kafka.tools.ClusterTool",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-console-producer": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "kafka.tools.ConsoleConsumer",
}
STACK_TRACE = re.compile(r"^\s+(at |\.\.\. \d+ more)")


def require_java() -> None:
    require("a tool of Kafka's", "java", "mvn")


def kafka_jars(version: str) -> list[Path]:
    return list(Path(kafka_classpath(version)).parent.glob("*.jar"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    exit: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The output without the frames of stack traces, and the exit code unless it is 0."""
        lines = [*self.out.splitlines(), *self.err.splitlines()]
        if self.exit:
            lines.append(f"exit {self.exit}")
        return "\n".join(line for line in lines if not STACK_TRACE.match(line))


def command(version: str, line: str, bootstrap: str) -> tuple[str, list[str]]:
    """The class and the arguments of a line as in a shell."""
    name, *args = shlex.split(line)
    mains = OLDER_MAINS if version == OLDER else MAINS
    where = ["--bootstrap-server", bootstrap]
    return mains[name], [*args, *where] if name == "kafka-cluster" else [*where, *args]


@dataclass(slots=True)
class Tools:
    """A JVM with the tools of one version, for one cluster and one folder. Not thread-safe."""

    version: str
    bootstrap: str
    folder: Path
    process: subprocess.Popen[str]

    def run(self, line: str) -> Answer:
        """Runs a line as in a shell, such as `kafka-console-producer --topic notes <<< one`."""
        if line.startswith("kafka-console-consumer"):
            return self._run_apart(line)
        line, _, stdin = line.partition(HERE_STRING)
        main, args = command(self.version, line, self.bootstrap)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        deadline = threading.Timer(CALL_TIMEOUT_S, self.process.kill)
        deadline.start()
        try:
            self.process.stdin.write(json.dumps({"main": main, "args": args, "stdin": stdin}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        finally:
            deadline.cancel()
        assert answer, f"the JVM ended, or {CALL_TIMEOUT_S:.0f} s went by, in {line!r} of {self.version}"
        return Answer(**json.loads(answer))

    def _java(self, line: str) -> list[str]:
        main, args = command(self.version, line, self.bootstrap)
        return [*dying_with_parent(), *JAVA, "-cp", kafka_classpath(self.version), main, *args]

    def _run_apart(self, line: str) -> Answer:
        done = subprocess.run(
            self._java(line),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT_S,
            check=False,
        )
        return Answer(exit=done.returncode, out=done.stdout, err=done.stderr)

    @contextmanager
    def reading(self, line: str, records: int) -> Iterator[None]:
        """A console consumer that has printed this many records. It continues until the end of the block."""
        process = subprocess.Popen(self._java(line), stdout=subprocess.PIPE, text=True)
        printed: list[str] = []
        reader = threading.Thread(target=_collect, args=(process, printed), daemon=True)
        reader.start()
        try:
            until(f"{records} records printed by {line}", lambda: len(printed) >= records, CALL_TIMEOUT_S)
            yield
            process.send_signal(signal.SIGTERM)
            process.wait(CALL_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            reader.join()


def _collect(process: subprocess.Popen[str], printed: list[str]) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        printed.extend(output)


@contextmanager
def tools(version: str, bootstrap: str, folder: Path) -> Iterator[Tools]:
    process = subprocess.Popen(
        [
            *dying_with_parent(),
            *JAVA,
            *("-cp", kafka_classpath(version), str(KAFKA / "Tools.java")),
        ],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Tools(version, bootstrap, folder, process)
    finally:
        process.kill()
        process.communicate()
