"""Every API and version that ApiVersions advertises works, with an independent codec.

Law: every advertised (key, version) answers a normal request without an error, and an independent codec decodes every
byte of the answer. Every key that is not advertised is answered with UNSUPPORTED_VERSION, or ends in a clean close, as
does every unknown key. The keys come from the
running server's own answer: a new row fails here until a request for it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kafscale.wire.errors import ErrorCode

from e2e.harness.api_requests import ROWS, produce
from e2e.harness.cluster import Cluster
from e2e.harness.oracles import API_VERSIONS, codec_of, errors_in, read_answer, request_frame
from e2e.harness.prepared import World, topic
from e2e.harness.raw import Closed, Raw
from e2e.harness.services import until

PRODUCE = 0
KEYS = range(-1, 94)  # all of Kafka 4.3, and one more on either side
NOT_OFFERED = (-1, -1)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("table"), env=settings)
    cluster.start()
    try:
        with Raw.to(cluster.bootstrap) as raw:
            until("a group is served", lambda: served_by_coordinator(raw))
        yield cluster
    finally:
        cluster.kill()


def served_by_coordinator(raw: Raw) -> bool:
    find = request_frame(10, 0, 1, {"key": "first"})
    raw.frame(find)
    return set(errors_in(read_answer(10, 0, raw.answer())[1])) == {0}


@pytest.fixture(scope="module")
def versions(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """The server's answer, whether or not the version is stable: key -> first and last version."""
    with Raw.to(cluster.bootstrap) as raw:
        told = ask(raw, API_VERSIONS, 3, World(topic="", group=""))
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in told["api_keys"]}


def ask(raw: Raw, key: int, version: int, world: World, *, surplus: bytes = b"") -> Any:
    raw.frame(request_frame(key, version, version, ROWS[key].content(world, version)) + surplus)
    correlation_id, told = read_answer(key, version, raw.answer())
    assert correlation_id == version
    return told


@pytest.mark.parametrize("key", KEYS)
def test_every_advertised_version_is_answered_well_and_every_other_key_is_refused(
    cluster: Cluster, versions: dict[int, tuple[int, int]], key: int
) -> None:
    first, last = versions.get(key, NOT_OFFERED)
    if (first, last) == NOT_OFFERED:
        is_refused(cluster, key)
        return
    assert key in ROWS, f"API {key} is advertised: write a request of it into e2e/harness/api_requests.py"
    wrong: dict[int, object] = {}
    for version in range(first, last + 1):
        name = f"table-{key}-{version}"
        with Raw.to(cluster.bootstrap) as raw:
            world = ROWS[key].prepare(raw, World(topic=name, group=name))
            codes = set(errors_in(ask(raw, key, version, world)))
        if not codes <= ROWS[key].expected(version):
            wrong[version] = codes
    assert wrong == {}


def test_bytes_after_the_last_field_of_a_request_are_ignored(
    cluster: Cluster, versions: dict[int, tuple[int, int]]
) -> None:
    """As in Kafka. kafka-go's DescribeAcls and librdkafka's AlterUserScramCredentials have one byte too many."""
    wrong: dict[int, object] = {}
    for key, row in ROWS.items():
        _, last = versions[key]
        name = f"surplus-{key}"
        with Raw.to(cluster.bootstrap) as raw:
            world = row.prepare(raw, World(topic=name, group=name))
            codes = set(errors_in(ask(raw, key, last, world, surplus=b"\0\1\2")))
        if not codes <= row.expected(last):
            wrong[key] = codes
    assert wrong == {}


def is_refused(cluster: Cluster, key: int) -> None:
    known = [version for version in range(16) if codec_of(key, version) is not None]
    for version in known or [0]:
        with Raw.to(cluster.bootstrap) as raw:
            raw.frame(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
            try:
                _, told = read_answer(key, version, raw.answer())
            except Closed:
                continue
            assert told["error_code"] == ErrorCode.UNSUPPORTED_VERSION, f"API {key} v{version}: {told}"
            assert ask(raw, API_VERSIONS, 3, World(topic="", group="")), "the connection goes on"


def test_a_tool_that_moves_replicas_reads_why_it_cannot(cluster: Cluster) -> None:
    """kafkactl and others that do not ask for ApiVersions printed "EOF"."""
    with Raw.to(cluster.bootstrap) as raw:
        raw.frame(request_frame(45, 0, 1, {"timeout_ms": 1_000, "topics": []}))
        _, told = read_answer(45, 0, raw.answer())
    assert told["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert "there are no replicas to move" in told["error_message"]


def test_every_version_between_the_ends_has_an_independent_reader(
    versions: dict[int, tuple[int, int]],
) -> None:
    offered = [(key, ends) for key, ends in versions.items() if ends != NOT_OFFERED]
    unread = [
        (key, version)
        for key, (first, last) in offered
        for version in range(first, last + 1)
        if codec_of(key, version) is None
    ]
    assert len(offered) > 20
    assert unread == []


def test_produce_without_acks_is_silent_in_every_version(
    cluster: Cluster, versions: dict[int, tuple[int, int]]
) -> None:
    _, last = versions[PRODUCE]
    with Raw.to(cluster.bootstrap) as raw:
        world = topic(raw, World(topic="silent", group=""))
        for version in range(last + 1):
            raw.frame(request_frame(PRODUCE, version, 99, produce(world, version, acks=0)))
            ask(raw, API_VERSIONS, 0, world)  # whose correlation id is 0: nothing of the 99 before it
