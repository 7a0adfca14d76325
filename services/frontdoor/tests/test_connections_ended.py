"""Connections that have ended leave nothing behind for the collector."""

import gc
import weakref

import pytest
from door_harness import Cluster, settled, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.apis import SERVED
from kafscale.runtime.stream.frame import ReplyStatus
from login_harness import PASSWORD, LoginClient, alice, plain


@pytest.mark.parametrize("key", list(SERVED))
async def test_a_connection_that_has_ended_is_gone_at_once_without_the_collector(key: int) -> None:
    """Who sends rubbish on ten thousand connections must not fill memory until the next collection."""
    async with Cluster.running() as cluster:
        for role in (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR, Backend.ADMIN):
            cluster.serve(role, 1)
        gc.disable()
        try:
            client = cluster.client()
            client.ask(key, SERVED[key].versions[1], b"\xff")
            await settled()
            for stream in cluster.streams.values():
                for sent in stream.sent:
                    if not sent.future.done():
                        sent.reply(status=ReplyStatus.FAILED)
            await settled()
            connection = weakref.ref(client.connection)
            if not client.hung_up:
                client.leave()
            await settled()
            client.transport.protocol = None
            del client
            await settled()
            assert connection() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("ending", ["left", "answered", "refused", "held"])
async def test_a_producer_that_has_ended_is_gone_at_once_without_the_collector(ending: str) -> None:
    async with Cluster.running() as cluster:
        topic = cluster.topics.add("t", 1, 2)
        if ending != "held":
            cluster.serve(Backend.PRODUCE, 1)
            cluster.own(topic, 0, 1)
            cluster.own(topic, 1, 1)
        gc.disable()
        try:
            client = cluster.client()
            client.produce(("t", 0, b"abc"))
            client.produce(("t", 0, b"abc"), ("t", 1, b"abc"))
            await settled()
            for sent in list(cluster.producer(1).sent):
                if ending == "answered":
                    sent.append()
                elif ending == "refused":
                    sent.reply(status=ReplyStatus.FAILED)
            await settled()
            connection = weakref.ref(client.connection)
            if not client.hung_up:
                client.leave()
            await settled()
            client.transport.protocol = None
            del client
            await settled()
            assert connection() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "ending", ["silent", "stranger", "handshaken", "delayed", "checking", "refused", "logged in"]
)
async def test_a_client_with_a_login_that_has_ended_is_gone_at_once_without_the_collector(
    ending: str,
) -> None:
    delay_ms = 10_000 if ending == "delayed" else 0
    settings = {"sasl_enabled_mechanisms": "PLAIN", "connection_failed_authentication_delay_ms": delay_ms}
    async with Cluster.running(alice(), **settings) as cluster:  # type: ignore[arg-type]
        gc.disable()
        try:
            client = LoginClient(cluster)
            if ending == "stranger":
                client.ask(3, 9, b"")
            elif ending != "silent":
                client.handshake("PLAIN")
                await settled()
            if ending in ("delayed", "checking", "refused", "logged in"):
                client.authenticate(plain(password=PASSWORD if ending == "logged in" else "wrong"))
            pending = cluster.door.gateway.metrics.pending_authentications
            if ending != "checking":
                await until(lambda: pending.value == 0)
            connection = weakref.ref(client.connection)
            if not client.hung_up:
                client.leave()
            await until(lambda: pending.value == 0)
            await settled()
            client.transport.protocol = None
            del client
            await settled()
            assert connection() is None
        finally:
            gc.enable()
