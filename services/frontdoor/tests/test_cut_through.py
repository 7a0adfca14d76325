"""A Fetch answer goes to the client while it arrives, and one that breaks off never looks like another answer."""

from pathlib import Path
from struct import unpack, unpack_from

import pytest
from door_fakes import Sent
from door_harness import Cluster, FakeClient, settled, split_over_two, until
from door_sockets import close, framed, on_uvloop, running
from kafscale.access.quota import QuotaEntity, QuotaKey
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.handlers.fetch import GRACE_MS
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.wire.schema import api_versions
from tls_clients import Certificates, connect

MIB = 1 << 20
LARGE = bytes(range(256)) * (3 << 12)
"""3 MiB, as one record set."""


async def asked(cluster: Cluster, **options: int) -> tuple[FakeClient, Sent]:
    cluster.serve(Backend.FETCH, 1)
    client = cluster.client()
    client.fetch(("t", 0), max_bytes=8 * MIB, **options)
    return client, cluster.fetcher(1).sent[0]


async def test_the_first_bytes_leave_before_the_last_have_arrived(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    body = sent.body_of(LARGE)
    sent.part(body, 0, MIB)
    await settled()
    assert unpack_from(">i", client.transport.out)[0] == len(body) + 5
    assert len(client.transport.out) == 4 + 5 + MIB
    sent.part(body, MIB, 2 * MIB)
    sent.part(body, 2 * MIB, len(body))
    await settled()
    assert client.fetched() == [("t", 0, 0, LARGE)]
    assert not client.connection.exchanges


async def test_the_bytes_are_those_of_the_same_answer_in_one_piece(cluster: Cluster) -> None:
    for version in (4, 12):
        outs = []
        for pieces in (1, 4):
            client, sent = await asked(cluster, version=version)
            sent = cluster.fetcher(1).sent[-1]
            body = sent.body_of(LARGE)
            if pieces == 1:
                sent.reply(body)
            else:
                for start in range(0, len(body), MIB):
                    sent.part(body, start, min(start + MIB, len(body)))
            await settled()
            outs.append(bytes(client.transport.out))
        assert outs[0] == outs[1]


async def test_a_stream_that_breaks_within_an_answer_ends_the_connection_within_it(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    client.ask(18, 3, *api_versions.encode_request(api_versions.ApiVersionsRequest(), 3))
    body = sent.body_of(LARGE)
    sent.part(body, 0, MIB)
    await settled()
    out = bytes(client.transport.out)
    sent.lose(sent=True)
    await settled()
    assert client.hung_up
    assert bytes(client.transport.out) == out, "nothing follows what has left of the answer"
    assert len(cluster.fetcher(1).sent) == 1, "nobody is asked again"
    assert cluster.door.gateway.metrics.hung_up.labels("answer_broken").value == 1


async def test_an_answer_that_broke_off_while_it_waited_behind_another_ends_the_connection_too(
    cluster: Cluster,
) -> None:
    cluster.serve(Backend.FETCH, 1)
    cluster.serve(Backend.COORDINATOR, 1)
    client = cluster.client()
    client.ask(22, 0, b"\xff\xff", bytes(4))  # InitProducerId, for which no Fetch waits
    client.fetch(("t", 0), max_bytes=8 * MIB)
    (sent,) = cluster.fetcher(1).sent
    sent.part(sent.body_of(LARGE), 0, MIB)
    await settled()
    assert not client.transport.out
    sent.lose(sent=True)
    await settled()
    assert client.hung_up
    assert not client.transport.out


@pytest.mark.parametrize("first", [False, True])
async def test_a_lost_instance_is_replaced_only_before_the_first_part(cluster: Cluster, first: bool) -> None:
    cluster.serve(Backend.FETCH, 1, 2)
    client = cluster.client()
    client.fetch(("unknown", 0), max_bytes=8 * MIB)
    (sent,) = cluster.fetcher(1).sent
    body = sent.body_of(LARGE)
    if first:
        sent.part(body, 0, MIB)
    sent.lose(sent=True)
    await settled()
    assert client.hung_up is first
    assert len(cluster.fetcher(2).sent) == (0 if first else 1)


async def test_an_answer_whose_rest_does_not_come_in_time_ends_the_connection(cluster: Cluster) -> None:
    client, sent = await asked(cluster, max_wait_ms=0)
    body = sent.body_of(LARGE)
    sent.part(body, 0, MIB)
    await settled()
    (exchange,) = client.connection.exchanges.values()
    client.connection.sweep(exchange.deadline_ms - 1)
    assert not client.hung_up
    client.connection.sweep(exchange.request.arrived_ms + GRACE_MS + 1_000)
    assert client.hung_up
    assert sent.cancelled
    assert len(client.transport.out) == 4 + 5 + MIB


async def test_a_client_that_leaves_within_an_answer_frees_its_memory(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    client.transport.takes = False
    sent.part(sent.body_of(LARGE), 0, MIB)
    await settled()
    assert cluster.door.gateway._answers.used_bytes > 3 * MIB
    client.leave()
    assert sent.cancelled
    assert cluster.door.gateway._answers.used_bytes == 0


async def test_an_answer_counts_once_while_it_arrives_and_only_what_waits_afterwards(
    cluster: Cluster,
) -> None:
    client, sent = await asked(cluster)
    memory, head = cluster.door.gateway._answers, 4 + 5
    assert memory.used_bytes == 8 * MIB, "as much as the request may bring"
    client.transport.takes = False
    body = sent.body_of(LARGE)
    for end in (MIB, 2 * MIB, len(body)):
        sent.part(body, end - MIB if end < len(body) else 2 * MIB, end)
        await settled()
        assert memory.used_bytes == len(body) + head
    client.transport.buffered = 100
    client.connection.resume_writing()
    assert memory.used_bytes == 100


async def test_parts_wait_here_while_the_socket_takes_nothing(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    client.connection.pause_writing()
    body = sent.body_of(LARGE)
    for start in range(0, len(body), MIB):
        sent.part(body, start, min(start + MIB, len(body)))
    await settled()
    assert not client.transport.out
    client.connection.resume_writing()
    assert client.fetched() == [("t", 0, 0, LARGE)]


async def test_the_next_fetch_of_the_connection_waits_for_the_end_of_the_answer(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    client.fetch(("t", 1), max_bytes=8 * MIB)
    body = sent.body_of(LARGE)
    sent.part(body, 0, len(body) - 1)
    await settled()
    assert len(cluster.fetcher(1).sent) == 1
    sent.part(body, len(body) - 1, len(body))
    await settled()
    assert len(cluster.fetcher(1).sent) == 2


async def test_under_quotas_and_over_several_instances_an_answer_is_put_together_first(
    cluster: Cluster,
) -> None:
    first, second = split_over_two(cluster)
    client = cluster.client()
    client.fetch(("t", second), ("t", first))
    assert [cluster.fetcher(node).sent[0].parts for node in (1, 2)] == [None, None]
    cluster.quotas.put(QuotaEntity(client_id="test"), QuotaKey.CONSUMER_BYTE_RATE, 1e9)
    alone = cluster.client()
    alone.fetch(("t", first))
    assert cluster.fetcher(1).sent[-1].parts is None


async def test_an_answer_that_failed_before_its_first_part_is_answered_as_ever(cluster: Cluster) -> None:
    client, sent = await asked(cluster)
    sent.reply(status=ReplyStatus.FAILED)
    await settled()
    assert client.fetched() == [("t", 0, 6, b"")]
    assert not client.hung_up


async def fetch_and_kill(tls: Certificates | None) -> None:
    """The service dies when the client has the first bytes of its answer."""
    answer = bytes(range(256)) * (64 << 12)
    async with running(**(tls.settings() if tls else {})) as system:
        system.service.fetched = answer
        reader, writer = await (connect(system, tls.context()) if tls else system.connect())
        writer.write(framed(1, 4, 7, bytes(17)))
        size, correlation_id = unpack(">ii", await reader.readexactly(8))
        assert (size, correlation_id) == (4 + len(answer), 7)
        await system.backend.stop(0)
        rest = await reader.read()  # to the end: neither a reset nor an alert of TLS
        assert answer.startswith(rest)
        assert len(rest) < len(answer)
        assert system.door.gateway.metrics.hung_up.labels("answer_broken").value == 1
        await until(lambda: not system.door.gateway.connections)
        await close(writer)


@on_uvloop
async def test_at_a_socket_a_broken_answer_is_its_beginning_and_then_the_end() -> None:
    await fetch_and_kill(None)


def test_over_tls_a_broken_answer_is_its_beginning_and_then_the_end(tmp_path: Path) -> None:
    on_uvloop(fetch_and_kill)(Certificates(tmp_path))
