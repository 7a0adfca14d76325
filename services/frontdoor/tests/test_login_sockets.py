"""Real clients log in over real sockets: librdkafka, kafka-python and aiokafka with every mechanism that they know."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from struct import pack
from typing import Any

import aiokafka.client
import aiokafka.errors
import grpc.aio
import pytest
import structlog
from aiokafka.abc import AbstractTokenProvider as AioTokens
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from door_fakes import FakeLive, FakeOwners, FakeSlots, FakeTopics, instance
from door_harness import settled, until
from door_sockets import end_all
from kafscale.access.protocol import SecurityProtocol
from kafscale.frontdoor.access import AccessMeans
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.assembly import ROLES, FrontDoor, Means, Views, assemble, connect_streams
from kafscale.frontdoor.client import ClientConnection
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import dial_by
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.options import SERVER_OPTIONS
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.wire.schema import metadata
from login_harness import ALICE, AUDIENCE, ISSUER, PASSWORD, Issuer, alice, handshake_body, plain

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokens

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
EVERY = (*MECHANISMS, "OAUTHBEARER")
USERS = alice()
ISSUED_BY = Issuer()
SECURITY = ListenerSecurity(name="SASL_PLAINTEXT", protocol=SecurityProtocol.SASL_PLAINTEXT)


class System:
    """A front door on a port of this machine, and an admin that answers Metadata."""

    def __init__(self, door: FrontDoor) -> None:
        self.door = door
        self.port = 0
        self.principals: list[str] = []

    def metadata(self, request: InboundRequest) -> None:
        self.principals.append(request.meta.principal)
        broker = metadata.MetadataResponseBroker(node_id=7, host="127.0.0.1", port=self.port)
        topic = metadata.MetadataResponseTopic(name="orders", topic_id=bytes(16))
        response = metadata.MetadataResponse(brokers=[broker], controller_id=7, topics=[topic])
        request.reply(metadata.encode_response(response, request.meta.api_version))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@asynccontextmanager
async def running(keys: Path, **settings: Any) -> AsyncIterator[System]:
    keys.write_bytes(ISSUED_BY.jwks)
    chosen = FrontdoorSettings(
        sasl_enabled_mechanisms=",".join(EVERY),
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=(AUDIENCE,),
        **settings,
    )
    live = {role: FakeLive() for role in ROLES}
    topics: Any = FakeTopics()
    views = Views(
        topics=topics,
        owners=FakeOwners(),
        slots=FakeSlots(),
        live=live,
        front_doors=FakeLive(),
        cluster_id=str,
    )
    async with asyncio.TaskGroup() as tasks:
        metrics = Metrics("frontdoor")
        means = Means(
            node_id=7,
            clock=SystemClock(),
            watch=LoopWatch(SystemClock()),
            tasks=tasks,
            metrics=metrics,
            tracer=None,
            budget=MemoryBudget(chosen.memory_bytes),
            acked=AckedRevision(),
            connect=connect_streams(chosen, dial_by(None)),
            authorization=Authorization(None, metrics),
            access=AccessMeans(users=USERS),
        )
        door = assemble(chosen, views, means)
        system = System(door)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        StreamServer(bulk={}, control={3: system.metadata}).add_to(server)
        backend_port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        live[Backend.ADMIN].set(replace(instance(Backend.ADMIN, 1), address=f"127.0.0.1:{backend_port}"))
        assert door.authentication is not None
        logins = door.authentication.of(SECURITY.name, encrypted=False)
        factory = partial(ClientConnection, door.gateway, SECURITY, logins=logins)
        listening = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
        system.port = listening.sockets[0].getsockname()[1]
        sweep = tasks.create_task(door.gateway.sweep())
        try:
            yield system
        finally:
            listening.close()
            await settled()  # what was accepted by then has its connection
            await end_all(door.gateway)
            await door.close()
            await server.stop(0)
            sweep.cancel()


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


# ---- the clients: each lists the topics, in a thread if it blocks


class OfPython(PythonTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


class OfAio(AioTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def librdkafka(address: str, mechanism: str, password: str, token: str) -> set[str]:
    config: dict[str, Any] = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (token, 4_000_000_000)
    else:
        config |= {"sasl.username": ALICE, "sasl.password": password}
    client = AdminClient(config)
    client.poll(0)
    return set(client.list_topics(timeout=5 if password == PASSWORD else 1).topics)


def kafka_python(address: str, mechanism: str, password: str, token: str) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return _kafka_python(address, mechanism, password, token)


def _kafka_python(address: str, mechanism: str, password: str, token: str) -> set[str]:
    consumer = KafkaConsumer(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=ALICE,
        sasl_plain_password=password,
        sasl_oauth_token_provider=OfPython(token),
        bootstrap_timeout_ms=2_000,
    )
    try:
        return set(consumer.topics())
    finally:
        consumer.close(autocommit=False)


async def aio(address: str, mechanism: str, password: str, token: str) -> set[str]:
    client = aiokafka.client.AIOKafkaClient(
        bootstrap_servers=address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=ALICE,
        sasl_plain_password=password,
        sasl_oauth_token_provider=OfAio(token),
    )
    try:
        await client.bootstrap()
        return set((await client.fetch_all_metadata()).topics())
    finally:
        await client.close()


Listing = Callable[[str, str, str, str], set[str]]


@pytest.mark.parametrize("mechanism", EVERY)
@pytest.mark.parametrize("listing", [librdkafka, kafka_python])
async def test_clients_log_in(listing: Listing, mechanism: str, tmp_path: Path) -> None:
    async with running(tmp_path / "keys") as system:
        topics = await asyncio.to_thread(listing, system.address, mechanism, PASSWORD, ISSUED_BY.token())
        assert topics == {"orders"}
        assert set(system.principals) == {"User:alice"}


@pytest.mark.parametrize("mechanism", EVERY)
async def test_aiokafka_logs_in(mechanism: str, tmp_path: Path) -> None:
    async with running(tmp_path / "keys") as system:
        assert await aio(system.address, mechanism, PASSWORD, ISSUED_BY.token()) == {"orders"}
        assert set(system.principals) == {"User:alice"}


@pytest.mark.parametrize("mechanism", EVERY)
@pytest.mark.parametrize(
    ("listing", "error"),
    [(librdkafka, KafkaException), (kafka_python, KafkaError)],
)
async def test_clients_with_wrong_credentials_are_refused(
    listing: Listing, error: type[Exception], mechanism: str, tmp_path: Path
) -> None:
    async with running(tmp_path / "keys") as system:
        with pytest.raises(error):
            await asyncio.to_thread(
                listing, system.address, mechanism, "wrong", ISSUED_BY.token(aud="another")
            )
        counts = system.door.gateway.metrics.authentications
        assert counts.labels(mechanism, "refused").value >= 1
        assert system.principals == []


async def test_librdkafka_authenticates_again_over_three_sessions(tmp_path: Path) -> None:
    async with running(tmp_path / "keys", connections_max_reauth_ms=1_500) as system:
        config = {
            "bootstrap.servers": system.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": ALICE,
            "sasl.password": PASSWORD,
            "topic.metadata.refresh.interval.ms": 200,
            "log_level": 0,
        }
        client = AdminClient(config)
        metrics = system.door.gateway.metrics
        again = metrics.authentications.labels("SCRAM-SHA-256", "reauthenticated")

        async def use() -> None:
            while again.value < 3:
                topics = await asyncio.to_thread(client.list_topics, timeout=5)
                assert set(topics.topics) == {"orders"}

        async with asyncio.timeout(30):
            await use()
        assert metrics.expired_sessions.value == 0


async def test_a_frame_that_comes_slowly_does_not_outlast_the_login(tmp_path: Path) -> None:
    async with running(tmp_path / "keys", authentication_timeout_ms=1_000) as system:
        reader, writer = await asyncio.open_connection("127.0.0.1", system.port)
        whole = pack(">ihhih", 10 + len(handshake_body("PLAIN")), 17, 1, 1, -1) + handshake_body("PLAIN")

        async def drip() -> None:
            for byte in whole[:-1]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.2)

        dripping = asyncio.ensure_future(drip())
        async with asyncio.timeout(10):
            with suppress(ConnectionError):  # a byte that comes after the end resets it
                assert await reader.read() == b""
        dripping.cancel()
        writer.close()
        assert system.door.gateway.metrics.hung_up.labels("authentication_timeout").value == 1


async def test_a_thousand_silent_strangers_do_not_stop_a_login(tmp_path: Path) -> None:
    async with running(tmp_path / "keys") as system:
        strangers = [await asyncio.open_connection("127.0.0.1", system.port) for _ in range(600)]
        gateway = system.door.gateway
        await until(lambda: len(gateway.unauthenticated) == 500)
        assert gateway.metrics.hung_up.labels("displaced").value == 100, "one address has half of the places"
        topics = await asyncio.to_thread(librdkafka, system.address, "PLAIN", PASSWORD, "")
        assert topics == {"orders"}
        for _, writer in strangers:
            writer.close()


async def test_a_login_by_hand_with_bare_tokens(tmp_path: Path) -> None:
    async with running(tmp_path / "keys") as system:
        reader, writer = await asyncio.open_connection("127.0.0.1", system.port)
        body, token = handshake_body("PLAIN", 0), plain()
        writer.write(pack(">ihhih", 10 + len(body), 17, 0, 1, -1) + body + pack(">i", len(token)) + token)
        async with asyncio.timeout(10):
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
            assert await reader.readexactly(4) == bytes(4), "an empty token"
        writer.close()
