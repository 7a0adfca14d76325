"""KafScale and Apache Kafka side by side, both empty, for tests that compare the output of a tool."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from e2e.harness.apache import ApacheKafka
from e2e.harness.cluster import Cluster

KAFKA_SETTINGS = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
# With this feature Kafka sets min.insync.replicas for the whole cluster, and every tool shows it.
KAFKA_FEATURES = ("eligible.leader.replicas.version=0",)
KAFSCALE_SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
MASKS = (
    (re.compile(r"COORDINATOR \(ID\)"), "COORDINATOR"),
    (re.compile(r"[\w.-]+:\d+\s+\(\d+\)"), "<broker>"),
    (re.compile(r"\b(the-client|console-consumer)-[0-9a-f-]{36}\b"), "<member>"),
    (re.compile(r"(?<!\S)[\w+/-]{22}(?=\s.*the-client)"), "<member>"),
    (re.compile(r"(TopicId|Cluster ID): [\w-]{22}"), r"\1: <id>"),
    (re.compile(r"/127\.0\.0\.1|/\[?::1\]?"), "<host>"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "<address>"),
)
EPOCHS = {"GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "CURRENT-EPOCH", "TARGET-EPOCH"}
"""Not compared: Apache Kafka 4.3 starts group epochs at 2; KafScale and earlier Kafka versions at 1."""


def masked(output: str) -> list[str]:
    """Sorted rows with single spaces: row order and column widths are different for each run."""
    for pattern, mask in MASKS:
        output = pattern.sub(mask, output)
    rows, left_out = [], set[int]()
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["GROUP"]:
            left_out = {at for at, word in enumerate(words) if word in EPOCHS}
        rows.append(" ".join(word for at, word in enumerate(words) if at not in left_out))
    return sorted(row for row in rows if row)


@contextmanager
def side_by_side(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of KafScale and of Apache Kafka."""
    ours = Cluster(data_dir=folder / "kafscale", env=KAFSCALE_SETTINGS)
    theirs = ApacheKafka(
        folder / "kafka",
        flush_before_ack=False,
        settings=KAFKA_SETTINGS,
        features=KAFKA_FEATURES,
        heap="512m",
    )
    with ExitStack() as stack:
        stack.callback(ours.kill)
        ours.start()
        stack.callback(theirs.stop)
        theirs.start()
        yield ours.bootstrap, theirs.bootstrap


def keep(path: Path, said: Mapping[str, str]) -> None:
    """Writes the raw outputs, to investigate differences."""
    path.write_text("".join(f"$ {command}\n{output}\n" for command, output in said.items()))


def write_once(path: Path, text: str) -> None:
    """The whole file at once: the tool that asks the other system reads the same file, perhaps now."""
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as written:
            written.write(text)
        Path(written.name).replace(path)
