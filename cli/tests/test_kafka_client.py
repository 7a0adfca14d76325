"""The commands' Kafka client: what it asks again, and the sentence for each way in which nobody answers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kafscale.cli.kafka.client import Client, Passing, check, connected, patiently
from kafscale.cli.kafka.errors import KafkaTrouble, refusal
from kafscale.cli.kafka.topics import list_topics
from kafscale.runtime.ports import free_port
from kafscale.wire.apis import ApiKey, response_header_version
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import decode_request_header
from kafscale.wire.schema import metadata

Answer = Callable[[bytes], bytes | None]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[str]:
    """Answers frames on a port of this machine; None closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                reply = answer(await reader.readexactly(size))
                if reply is None:
                    return
                writer.write(struct.pack(">i", len(reply)) + reply)
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


def two_topics(frame: bytes) -> bytes:
    header, _ = decode_request_header(frame)
    body = metadata.MetadataResponse(
        brokers=[],
        topics=[
            metadata.MetadataResponseTopic(name=name, topic_id=bytes(16), partitions=[])
            for name in ("orders", "clicks")
        ],
    )
    tags = b"\x00" if response_header_version(ApiKey.METADATA, header.api_version) else b""
    return (
        header.correlation_id.to_bytes(4, "big")
        + tags
        + b"".join(metadata.encode_response(body, header.api_version))
    )


async def ask(bootstrap: str) -> list[str]:
    async with connected(bootstrap) as client:
        return [row["topic"] for row in await list_topics(client)]


async def test_the_first_address_that_answers_is_asked() -> None:
    async with server(two_topics) as there:
        assert await ask(f"127.0.0.1:{free_port()}, {there}") == ["clicks", "orders"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _: None, "it closed the connection"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n", "is no Kafka server"),
        (lambda frame: two_topics(frame)[:-3], "is no Kafka server"),
    ],
    ids=["closes", "speaks something else", "cuts its answer short"],
)
async def test_who_is_no_kafka_server_is_told_by_its_address(answer: Answer, told: str) -> None:
    async with server(answer) as there:
        with pytest.raises(KafkaTrouble, match=told) as trouble:
            await ask(there)
        assert there in str(trouble.value)
        assert "--bootstrap-server" in str(trouble.value)


async def test_where_nobody_listens_the_sentence_says_what_to_do() -> None:
    port = free_port()
    with pytest.raises(KafkaTrouble) as trouble:
        await ask(f"127.0.0.1:{port}")
    assert str(trouble.value) == (
        f"no Kafka server answers at 127.0.0.1:{port} (Connection refused); "
        "start one with `kafscale up`, or name another with --bootstrap-server"
    )


async def test_who_never_answers_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        host, port = mute.getsockname()
        async with connected(f"{host}:{port}") as client:
            with pytest.raises(KafkaTrouble, match="no answer in time"):
                await asked_shortly(client, monkeypatch)


async def asked_shortly(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafscale.cli.kafka.connection import Connection

    patient = Connection.ask
    monkeypatch.setattr(
        Connection,
        "ask",
        lambda *words, **_: patient(*words, timeout_s=0.05),
    )
    await client.metadata([])


def trying(*codes: ErrorCode) -> Callable[[], Awaitable[int]]:
    left = list(codes)

    async def ask() -> int:
        check("group 'g'", left.pop(0))
        return len(left)

    return ask


async def test_what_passes_is_asked_again_and_what_does_not_is_told_at_once() -> None:
    assert await patiently(trying(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)) == 0
    with pytest.raises(KafkaTrouble, match="does not exist"):
        await patiently(trying(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE))
    with pytest.raises(Passing, match="COORDINATOR_NOT_AVAILABLE"):
        await patiently(trying(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 99), patience_s=0.2)


def test_an_error_of_a_later_kafka_is_told_by_its_number() -> None:
    assert str(refusal("topic 'x'", 9_999)) == "topic 'x': error 9999, which Kafka does not know"
    assert str(refusal("topic 'x'", ErrorCode.INVALID_CONFIG, "no such key.")) == (
        "topic 'x': no such key (INVALID_CONFIG)"
    )
    assert str(refusal("topic 'x'", ErrorCode.REQUEST_TIMED_OUT)).endswith("try again in a moment")
