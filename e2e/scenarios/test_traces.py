"""One request is one trace, from the socket through gRPC to the PUT and the transaction.

Law: the spans of a request have one trace id in every process that works for it, each but the root has its parent in
the trace, and each is printed once. What a bundle costs stands below the span of its owner. The log lines of the
request bear the same id.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.schema import offset_commit

from e2e.harness import requests
from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import PRODUCE_V
from e2e.harness.services import until

TOPIC, PARTITIONS = "traced", 12
SEEN_S = 60.0  # spans leave a process each second; a busy machine takes longer
COMMIT_V = 5
GROUP = "readers"
STEPS = [
    f"frontdoor: Produce v{PRODUCE_V} begun",
    "frontdoor: ask produce begun",
    "frontdoor: ask produce sent",
    f"produce: Produce v{PRODUCE_V} begun",
    f"produce: Produce v{PRODUCE_V} admitted",
    f"produce: Produce v{PRODUCE_V} sealed",
    "produce: PUT bundle begun",
    "produce: PUT bundle ended",
    "produce: commit txn begun",
    "produce: commit txn sent",
    "produce: commit txn ended",
    f"produce: Produce v{PRODUCE_V} ended",
    "frontdoor: ask produce ended",
    f"frontdoor: Produce v{PRODUCE_V} ended",
]
"""Of a record alone in its bundle; docs/tracing-and-logs.md shows them."""

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Span:
    fields: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def process(self) -> tuple[str, str]:
        return self.service, self.instance


class Trace:
    """The spans of one trace id."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self.by_id = {span.span_id: span for span in spans}

    @property
    def root(self) -> Span:
        (root,) = [span for span in self.spans if span.parent_id is None]
        return root

    def below(self, parent: Span) -> list[Span]:
        return [span for span in self.spans if span.parent_id == parent.span_id]

    def servers(self, service: str) -> list[Span]:
        return [span for span in self.spans if span.kind == "server" and span.service == service]

    def story(self) -> str:
        return "\n".join(f"{span.parent_id} {span.span_id} {span.process} {span.name}" for span in self.spans)


def printed(cluster: Cluster, event: str) -> list[dict[str, Any]]:
    """The lines of every process with that event, whole ones alone."""
    texts = (log.read_text(errors="replace") for log in (cluster.data_dir / "run" / "log").glob("*.log"))
    lines = (line for text in texts for line in text.splitlines())
    return [json.loads(line) for line in lines if f'"event":"{event}"' in line and line.endswith("}")]


def trace_of(cluster: Cluster, client_id: str, whole: Callable[[Trace], bool]) -> Trace:
    """The one trace whose root is the client's, when `whole` says that all of it is there."""

    def look() -> Trace | None:
        spans = [Span(line) for line in printed(cluster, "span")]
        roots = [s for s in spans if s.parent_id is None and s.attributes.get("kafka.client_id") == client_id]
        return Trace([span for span in spans if span.trace_id == roots[0].trace_id]) if roots else None

    def there() -> bool:
        trace = look()
        return trace is not None and whole(trace)

    try:
        until(f"the trace of {client_id}", there, SEEN_S)
    except Exception as trouble:
        trace = look()
        raise AssertionError(trace.story() if trace else "no root") from trouble
    trace = look()
    assert trace is not None
    return trace


def ask(cluster: Cluster, client_id: str, key: int, version: int, body: Sequence[Any]) -> bytes:
    with Raw.to(cluster.bootstrap) as raw:
        raw.request(key, version, body, client_id=client_id)
        return raw.answer_to(key, version)


def produce_everywhere(cluster: Cluster, client_id: str) -> None:
    entries = [(TOPIC, part, requests.batch()) for part in range(PARTITIONS)]
    ask(cluster, client_id, ApiKey.PRODUCE, PRODUCE_V, [requests.produce_body(*entries)])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("traces"),
        scale={"produce": 2},
        env={
            "KAFSCALE_TRACE_EXPORTER": "console",
            "KAFSCALE_TRACE_RATIO": "1",
            "KAFSCALE_LOG_LEVEL": "debug",
        },
    )
    cluster.start()
    with Raw.to(cluster.bootstrap) as raw:
        assert requests.create(raw, TOPIC, partitions=PARTITIONS) == 0
    produce_everywhere(cluster, "claims")
    until("two owners", lambda: len(set(cluster.inside().owners(TOPIC).values())) == 2, SEEN_S)
    yield cluster
    cluster.kill()


def connected(trace: Trace) -> None:
    """Each span but the root has its parent in the trace, and is printed once."""
    assert all(span.parent_id is None or span.parent_id in trace.by_id for span in trace.spans), trace.story()
    assert max(Counter(span.span_id for span in trace.spans).values()) == 1, trace.story()


def test_a_produce_over_two_owners_is_one_trace_of_three_processes(cluster: Cluster) -> None:
    produce_everywhere(cluster, "writer")
    trace = trace_of(cluster, "writer", lambda trace: len(trace.servers("produce")) == 2)
    connected(trace)
    assert len({span.process for span in trace.spans}) == 3, trace.story()
    root = trace.root
    assert (root.service, root.kind, root.name) == ("frontdoor", "server", f"Produce v{PRODUCE_V}")
    assert root.attributes["kafka.partitions"] == PARTITIONS
    committed = 0
    for owner in trace.servers("produce"):
        asked = trace.by_id[owner.parent_id]
        assert (asked.service, asked.kind, asked.parent_id) == ("frontdoor", "client", root.span_id)
        below = Counter(span.name for span in trace.below(owner))
        assert set(below) == {"PUT bundle", "commit txn"}, trace.story()
        assert below["commit txn"] == owner.attributes["kafka.partitions"] >= below["PUT bundle"]
        committed += below["commit txn"]
    assert committed == PARTITIONS


def test_a_trace_has_each_step_of_one_record(cluster: Cluster) -> None:
    ask(cluster, "alone", ApiKey.PRODUCE, PRODUCE_V, [requests.produce_body((TOPIC, 0, requests.batch()))])
    trace = trace_of(cluster, "alone", lambda trace: len(trace.servers("produce")) == 1)
    steps = [
        (span.start_ns + after_ms * 1e6, f"{span.service}: {span.name} {step}")
        for span in trace.spans
        for step, after_ms in {"begun": 0.0, **span.events, "ended": span.duration_ms}.items()
    ]
    assert [step for _, step in sorted(steps)] == STEPS


def test_the_log_line_of_a_request_bears_its_trace(cluster: Cluster) -> None:
    produce_everywhere(cluster, "logged")
    trace = trace_of(cluster, "logged", lambda trace: len(trace.servers("produce")) == 2)
    (line,) = [line for line in printed(cluster, "request") if line.get("client_id") == "logged"]
    assert line["trace_id"] == trace.root.trace_id
    assert line["correlation_id"] == trace.root.attributes["kafka.correlation_id"]
    assert (line["api"], line["api_version"]) == ("Produce", PRODUCE_V)


def test_a_fetch_shows_what_it_read_and_how_long_it_was_held(cluster: Cluster) -> None:
    body = requests.fetch_body(topic=TOPIC, part=0)
    ask(cluster, "reader", ApiKey.FETCH, requests.FETCH_V, [body])
    read = trace_of(cluster, "reader", lambda trace: len(trace.servers("fetch")) == 1)
    connected(read)
    (server,) = read.servers("fetch")
    assert "GET segment" in {span.name for span in read.below(server)}, read.story()
    body = requests.fetch_body(topic=TOPIC, part=0, offset=_end(cluster), max_wait_ms=200)
    ask(cluster, "waiter", ApiKey.FETCH, requests.FETCH_V, [body])
    held = trace_of(cluster, "waiter", lambda trace: len(trace.servers("fetch")) == 1)
    (server,) = held.servers("fetch")
    assert "hold" in {span.name for span in held.below(server)}, held.story()


def _end(cluster: Cluster) -> int:
    with Raw.to(cluster.bootstrap) as raw:
        error, offset = requests.ask_list_offsets(raw, -1, topic=TOPIC, part=0)
    assert error == 0
    return offset


def test_a_commit_of_a_group_has_its_transaction(cluster: Cluster) -> None:
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    request = offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    body = offset_commit.encode_request(request, COMMIT_V)
    tries = 0

    def committed() -> bool:
        """A coordinator that has just been asked for the first time may still claim the slot."""
        nonlocal tries
        tries += 1
        answer = ask(cluster, f"committer-{tries}", ApiKey.OFFSET_COMMIT, COMMIT_V, body)
        return not offset_commit.decode_response(answer, COMMIT_V).topics[0].partitions[0].error_code

    until("the commit", committed, SEEN_S)
    trace = trace_of(cluster, f"committer-{tries}", lambda trace: bool(trace.servers("coordinator")))
    connected(trace)
    (server,) = trace.servers("coordinator")
    assert server.name == f"OffsetCommit v{COMMIT_V}"
    assert "commit txn" in {span.name for span in trace.below(server)}, trace.story()


def test_a_topic_s_creation_has_its_transaction(cluster: Cluster) -> None:
    with Raw.to(cluster.bootstrap) as raw:
        assert requests.create(raw, f"traced-{time.monotonic_ns()}") == 0
    trace = trace_of(cluster, "raw", lambda trace: bool(trace.servers("admin")))
    (server,) = trace.servers("admin")
    assert "etcd txn" in {span.name for span in trace.below(server)}, trace.story()
