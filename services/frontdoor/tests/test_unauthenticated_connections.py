"""Connections that have not logged in: a bounded number, the oldest gives way, one address cannot take every place."""

from pathlib import Path

from door_harness import Cluster, FakeClient
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.principals import ANONYMOUS, user
from kafscale.access.protocol import SecurityProtocol
from kafscale.frontdoor.listeners.connection_limits import UnauthenticatedConnections
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity, TlsSettings
from login_harness import alice

ADDRESSES = st.sampled_from(["a", "b", "c"])


def test_the_oldest_unauthenticated_connection_gives_way() -> None:
    waiting: UnauthenticatedConnections[int] = UnauthenticatedConnections(
        1 << 20, address_share=1.0, connections_max=3
    )
    assert [waiting.enter(number, "a") for number in range(5)] == [None, None, None, 0, 1]
    waiting.leave(3)
    assert waiting.enter(5, "a") is None
    assert len(waiting) == 3


def test_an_address_with_its_share_of_the_places_displaces_its_own() -> None:
    waiting: UnauthenticatedConnections[int] = UnauthenticatedConnections(
        1 << 20, address_share=0.5, connections_max=4
    )
    assert waiting.enter(0, "b") is None
    assert [waiting.enter(number, "a") for number in (1, 2, 3, 4)] == [None, None, 1, 2]
    assert waiting.enter(5, "b") is None


@given(st.lists(st.tuples(ADDRESSES, st.booleans()), max_size=60))
def test_there_is_always_a_place_and_never_too_many(steps: list[tuple[str, bool]]) -> None:
    waiting: UnauthenticatedConnections[int] = UnauthenticatedConnections(
        1 << 20, address_share=0.5, connections_max=4
    )
    inside: dict[int, str] = {}
    for number, (address, logs_in) in enumerate(steps):
        displaced = waiting.enter(number, address)
        if displaced is not None:
            del inside[displaced]
        inside[number] = address
        if logs_in:
            waiting.leave(number)
            del inside[number]
        assert len(waiting) == len(inside) <= 4
        assert all(list(inside.values()).count(one) <= 2 for one in "abc")


def tls_listener(protocol: SecurityProtocol) -> ListenerSecurity:
    files = TlsSettings(certificate=Path("c"), key=Path("k"))
    return ListenerSecurity(name=protocol.value, protocol=protocol, tls=files)


async def test_a_client_of_tls_is_unauthenticated_until_it_has_asked(cluster: Cluster) -> None:
    gateway = cluster.door.gateway
    client = FakeClient(cluster.door, security=tls_listener(SecurityProtocol.SSL))
    client.connection.established(user("CN=alice"))
    assert len(gateway.unauthenticated) == 1
    assert client.connection.caller.principal == "User:CN=alice"
    client.ask(18, 0)
    assert len(gateway.unauthenticated) == 0
    plain = cluster.client()
    assert len(gateway.unauthenticated) == 0
    for one in (client, plain):
        one.leave()


async def test_with_sasl_the_certificate_does_not_name_the_client() -> None:
    async with Cluster.running(credentials=alice()) as cluster:
        assert cluster.door.authentication is not None
        logins = cluster.door.authentication.of("SASL_SSL", encrypted=True)
        client = FakeClient(cluster.door, logins, tls_listener(SecurityProtocol.SASL_SSL))
        client.connection.established(user("CN=alice"))
        assert client.connection.caller.principal == ANONYMOUS
        client.leave()
