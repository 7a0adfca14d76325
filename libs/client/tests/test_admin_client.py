"""The Kafka client of the command: what it retries, and the sentence for each way in which no server answers."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafscale.access.acl import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import user
from kafscale.client import admin_client, transactions
from kafscale.client.acls import create_acls, delete_acls
from kafscale.client.admin_client import (
    Client,
    KafkaTrouble,
    OutcomeUnknown,
    Passing,
    failure,
    patiently,
)
from kafscale.client.groups import commit_offsets, committed_by_group, delete_group, delete_offsets
from kafscale.client.quotas import alter_quotas
from kafscale.client.request import BadAnswer, request_metadata
from kafscale.client.topics import (
    add_partitions,
    alter_topic_configs,
    create_topic,
    delete_before,
    delete_topic,
    find_topics,
    list_topics,
    offsets_at,
)
from kafscale.client.transactions import OpenTransaction, abort_transaction, terminate_transaction
from kafscale.client.users import store_password
from kafscale.runtime.ports import free_port
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.headers import decode_request_header, response_header_version
from kafscale.wire.schema import api_versions, metadata

Answer = Callable[[bytes, int], bytes | None]
"""Of a frame, and the port of the server."""


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Answers frames on a port of this machine. If the answer is None it closes, if it is empty it waits."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(4):
                reply = answer(self.rfile.read(*struct.unpack(">i", head)), port)
                if reply is None:
                    return
                self.wfile.write(reply)

    class Server(ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False  # clients of librdkafka reconnect until they are collected

        def handle_error(self, *_: object) -> None:
            """The client has closed the connection."""

    with Server(("127.0.0.1", 0), Handler) as listening:
        port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            listening.shutdown()
            thread.join()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def two_topics(frame: bytes, port: int) -> bytes:
    return framed(_two_topics(frame, port))


def cut_short(frame: bytes, port: int) -> bytes:
    return framed(_two_topics(frame, port)[:-3])


def _two_topics(frame: bytes, port: int) -> bytes:
    header, _ = decode_request_header(frame)
    version = header.api_version
    tags = b"\x00" if response_header_version(header.api_key, version) else b""
    head = header.correlation_id.to_bytes(4, "big") + tags
    if header.api_key == ApiKey.API_VERSIONS:
        served = [
            api_versions.ApiVersionsResponseVersion(api_key=key, min_version=0, max_version=most)
            for key, most in ((ApiKey.API_VERSIONS, 3), (ApiKey.METADATA, 12))
        ]
        body = api_versions.encode_response(
            api_versions.ApiVersionsResponse(error_code=0, api_keys=served), version
        )
        return head + b"".join(body)
    part = metadata.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
    )
    answer = metadata.MetadataResponse(
        brokers=[metadata.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=port)],
        cluster_id="fake",
        controller_id=1,
        topics=[
            metadata.MetadataResponseTopic(name=name, topic_id=bytes([at] * 16), partitions=[part])
            for at, name in enumerate(("orders", "clicks"))
        ],
    )
    return head + b"".join(metadata.encode_response(answer, version))


def ask(bootstrap: str) -> list[tuple[str, str]]:
    client = Client(bootstrap, connect_timeout_s=1.0)
    return [(row["topic"], row["topic_id"]) for row in list_topics(client)]


def test_the_first_address_that_answers_is_asked() -> None:
    with server(two_topics) as there:
        listed = ask(f"127.0.0.1:{free_port()}, {there}")
    assert listed == [("clicks", "01" * 16), ("orders", "00" * 16)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda *_: None, "it closed the connection"),
        (lambda *_: b"", "no answer in time"),
        (lambda *_: b"HTTP/1.1 400 Bad Request\r\n", "is no Kafka server"),
        (cut_short, "is no Kafka server"),
    ],
    ids=["closes", "is silent", "speaks something else", "cuts its answer short"],
)
def test_a_server_that_is_not_kafka_is_named_by_its_address(answer: Answer, reason: str) -> None:
    with server(answer) as there:
        with pytest.raises(KafkaTrouble, match=reason) as trouble:
            ask(there)
        assert there in str(trouble.value)
        assert "--bootstrap-server" in str(trouble.value)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:{port}", "Connection refused"),
        ("no-such-host.invalid:{port}", "the name no-such-host.invalid does not resolve"),
    ],
)
def test_where_no_server_is_the_sentence_says_what_to_do(
    address: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    where = address.format(port=free_port())
    with pytest.raises(
        KafkaTrouble,
        match=rf"^no Kafka server answers at {where} \(.*({reason}).*\); "
        "start one with `kafscale up`, or name another with --bootstrap-server$",
    ):
        ask(where)
    assert capfd.readouterr() == ("", ""), "librdkafka's log stays away from the terminal"


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(KafkaTrouble, match="^--bootstrap-server: 'kafka' is not host:port, such as"):
        Client("kafka")


HUGE = 1 << 40


@pytest.mark.parametrize(
    "work",
    [
        lambda client: create_topic(client, "a\0b", 1, {}),
        lambda client: create_topic(client, "new", 1 << 20, {}),
        lambda client: add_partitions(client, "orders", 0),
        lambda client: find_topics(client, [""]),
        lambda client: offsets_at(client, [("orders", HUGE)], -1),
        lambda client: delete_before(client, {("orders", -7): 1}),
        lambda client: committed_by_group(client, [""]),
        lambda client: commit_offsets(client, "g", {("orders", 0): 1 << 70}),
        lambda client: commit_offsets(client, "g", {}),
        lambda client: delete_offsets(client, "g", [("orders", HUGE)]),
        lambda client: store_password(client, "", "secret", ["SCRAM-SHA-256"], 4096),
        lambda client: store_password(client, "alice", "", ["SCRAM-SHA-256"], 4096),
    ],
)
def test_what_the_client_itself_refuses_is_a_sentence_with_the_code_of_a_wrong_request(
    work: Callable[[Client], object],
) -> None:
    with server(two_topics) as there:
        client = Client(there, connect_timeout_s=1.0)
        with pytest.raises(KafkaTrouble) as trouble:
            work(client)
    assert trouble.value.code == ErrorCode.INVALID_REQUEST
    assert "secret" not in str(trouble.value)
    assert not str(trouble.value).endswith("try again in a moment")


def test_a_request_by_hand_refuses_an_answer_that_is_not_kafkas() -> None:
    with server(two_topics) as there:
        assert [broker.node_id for broker in asked(there).brokers] == [1]
    for answer in (lambda *_: framed(b"\x00"), cut_short):
        with server(answer) as there, pytest.raises(BadAnswer):
            asked(there)


def asked(where: str) -> metadata.MetadataResponse:
    host, port = where.split(":")
    return asyncio.run(request_metadata(host, int(port)))


def trying(*codes: ErrorCode) -> Callable[[], int]:
    left = list(codes)

    def ask() -> int:
        code = left.pop(0)
        if code != ErrorCode.NONE:
            raise failure("group 'g'", code)
        return len(left)

    return ask


def test_errors_that_pass_are_retried_and_others_are_reported_at_once() -> None:
    assert patiently(trying(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)) == 0
    with pytest.raises(KafkaTrouble, match="does not exist"):
        patiently(trying(ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NONE))
    with pytest.raises(Passing, match="COORDINATOR_NOT_AVAILABLE"):
        patiently(trying(*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 99), patience_s=0.2)


def test_an_error_of_a_later_kafka_is_reported_by_its_number() -> None:
    assert str(failure("topic 'x'", 9_999)) == "topic 'x': error 9999, which Kafka does not know"
    assert str(failure("topic 'x'", ErrorCode.INVALID_CONFIG, "no such key.")) == (
        "topic 'x': no such key (INVALID_CONFIG)"
    )
    assert str(failure("topic 'x'", ErrorCode.REQUEST_TIMED_OUT)).endswith("try again in a moment")


ACL = AclBinding(
    resource_type=ResourceType.TOPIC,
    pattern_type=PatternType.LITERAL,
    resource_name="orders",
    principal=user("alice"),
    host="*",
    operation=Operation.READ,
    permission=Permission.ALLOW,
)
OPEN_TRANSACTION = OpenTransaction(
    topic="orders", partition=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
)
CHANGES: list[Callable[[Client], object]] = [
    lambda client: create_topic(client, "new", 1, {}),
    lambda client: add_partitions(client, "orders", 2),
    lambda client: alter_topic_configs(client, "orders", {"retention.ms": "1"}),
    lambda client: delete_topic(client, "orders"),
    lambda client: delete_before(client, {("orders", 0): 1}),
    lambda client: create_acls(client, [ACL]),
    lambda client: delete_acls(client, [AclFilter()]),
    lambda client: alter_quotas(client, {"user": "alice"}, {"producer_byte_rate": 1.0}),
    lambda client: store_password(client, "alice", "secret", ["SCRAM-SHA-256"], 4096),
    lambda client: delete_group(client, "g"),
    lambda client: delete_offsets(client, "g", [("orders", 0)]),
    lambda client: commit_offsets(client, "g", {("orders", 0): 1}),
    lambda client: abort_transaction(client, OPEN_TRANSACTION),
    lambda client: terminate_transaction(client, "t", 0),
]


class Asked:
    """The key of its future: a partition, an ACL, or a name."""

    topic, partition = "orders", 0
    principal, name = "User:alice", "orders"


class Failing:
    """An AdminClient whose requests all end with the same error."""

    def __init__(self, error: int) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., dict[type[Asked], Future[object]]]:
        def send(*_: object, **__: object) -> dict[type[Asked], Future[object]]:
            future: Future[object] = Future()
            future.set_exception(KafkaException(KafkaError(self._error)))
            return {Asked: future}

        return send


def failing_client(monkeypatch: pytest.MonkeyPatch, error: int, by_hand: Exception) -> Client:
    async def request(*_: object, **__: object) -> None:
        raise by_hand

    monkeypatch.setattr(admin_client, "request", request)
    monkeypatch.setattr(transactions, "_check_served", lambda *_: None)
    monkeypatch.setattr(transactions, "_leaders", lambda *_: {("orders", 0): ("127.0.0.1", 1)})
    monkeypatch.setattr(transactions, "_by_coordinator", lambda *_: [("t", ("127.0.0.1", 1))])
    under_way = {"transaction_timeout_ms": 1}
    monkeypatch.setattr(transactions, "transaction_under_way", lambda *_: under_way)
    monkeypatch.setattr(Client, "_connect", lambda _: SimpleNamespace(nodes=[Node]))
    client = Client("127.0.0.1:1")
    monkeypatch.setattr(client, "admin", Failing(error))
    return client


class Node:
    id, host, port = 1, "127.0.0.1", 1


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "error", [KafkaError._AUTHENTICATION, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.UNKNOWN]
)
def test_a_change_that_nobody_answered_may_have_taken_effect(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[Client], object], error: int
) -> None:
    client = failing_client(monkeypatch, error, TimeoutError())
    with pytest.raises(OutcomeUnknown, match=r"may have taken effect: look before you try again$") as unknown:
        change(client)
    assert unknown.value.code is None
    assert "in a moment" not in str(unknown.value)


def test_a_change_that_a_server_refuses_has_not_taken_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    client = failing_client(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED, TimeoutError())
    with pytest.raises(KafkaTrouble) as refused:
        delete_topic(client, "orders")
    assert not isinstance(refused.value, OutcomeUnknown)
    assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
