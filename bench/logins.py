"""What a new connection costs the front door: TLS with ECDSA certificates, and logins.

    python -m bench.logins [--count 2000] [--at-once 8]

Each connection is new, without a session of before, and ends with an answer to ApiVersions or to the login. The figure
is the CPU of the front door, so other load on the machine changes it little. `per core` is what one process on a core
of its own would take. The password of PLAIN is one that the front door remembers after the first login.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import secrets
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.runtime.ports import free_port
from kafscale.testkit.authority import Authority
from kafscale.testkit.scram_client import ScramClient
from kafscale.wire.schema import api_versions

from bench.cpu import family_seconds
from e2e.harness.deployment import Deployment
from e2e.harness.raw import Wire
from e2e.harness.secured import done, log_in

HOST = "127.0.0.1"
USER, PASSWORD = "alice", "alices-password"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "MUTUAL": "SSL", "SASL_SSL": "SASL_SSL"}
VERSIONS = api_versions.ApiVersionsRequest()


@dataclass(frozen=True, slots=True)
class Door:
    ports: dict[str, int]
    pid: int
    contexts: dict[str, ssl.SSLContext | None]

    async def open(self, listener: str) -> Wire:
        context = self.contexts[listener]
        reader, writer = await asyncio.open_connection(
            HOST, self.ports[listener], ssl=context, server_hostname=HOST if context else None
        )
        return Wire(reader, writer, "bench")


@contextmanager
def running(folder: Path) -> Iterator[Door]:
    servers, clients = Authority(folder / "servers"), Authority(folder / "clients")
    files = servers.issue(HOST)
    ports = {name: free_port() for name in LISTENERS}
    deployment = Deployment(folder / "deployment", 1, on_s3=False)
    env = {
        "KAFSCALE_LISTENERS": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": ",".join(
            f"{name}:{kind}" for name, kind in LISTENERS.items()
        ),
        "KAFSCALE_SSL_CERTIFICATE": str(files.certificate),
        "KAFSCALE_SSL_KEY": str(files.key),
        "KAFSCALE_SSL_CA": f"MUTUAL={clients.ca}",
        "KAFSCALE_SSL_CLIENT_AUTH": "MUTUAL=required",
        "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "KAFSCALE_CONNECTION_FAILED_AUTHENTICATION_DELAY_MS": "0",
    }
    try:
        deployment.start_etcd()
        deployment.start_services(env)
        deployment.wait_ready()
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{ports['PLAINTEXT']}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            done(
                admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())]
                )
            )
        contexts = {
            name: trusting(servers, clients.client("bench") if name == "MUTUAL" else None)
            for name in LISTENERS
        }
        yield Door(ports, deployment.services["frontdoor"].process.pid, {**contexts, "PLAINTEXT": None})
    finally:
        deployment.kill()


def trusting(servers: Authority, own: PemFiles | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=servers.ca)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def connecting(listener: str) -> Callable[[Door], Awaitable[None]]:
    async def once(door: Door) -> None:
        wire = await door.open(listener)
        await wire.ask(api_versions, 0, VERSIONS)
        wire.close()

    return once


async def by_plain(door: Door) -> None:
    wire = await door.open("SASL_SSL")
    await log_in(wire, "PLAIN", f"\0{USER}\0{PASSWORD}".encode())
    wire.close()


def by_scram(hash_name: str) -> Callable[[Door], Awaitable[None]]:
    async def once(door: Door) -> None:
        wire, client = (
            await door.open("SASL_SSL"),
            ScramClient(hash_name, USER, PASSWORD, secrets.token_hex(8)),
        )
        await log_in(wire, f"SCRAM-SHA-{hash_name.removeprefix('sha')}", client.first(), client.final)
        wire.close()

    return once


CASES: dict[str, Callable[[Door], Awaitable[None]]] = {
    "no TLS": connecting("PLAINTEXT"),
    "TLS": connecting("SSL"),
    "TLS, certificate of the client": connecting("MUTUAL"),
    "TLS, PLAIN": by_plain,
    "TLS, SCRAM-SHA-256": by_scram("sha256"),
    "TLS, SCRAM-SHA-512": by_scram("sha512"),
}


async def repeat(door: Door, once: Callable[[Door], Awaitable[None]], count: int, at_once: int) -> None:
    left = itertools.count()

    async def some() -> None:
        while next(left) < count:
            await once(door)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(some())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-logins-") as folder, running(Path(folder)) as door:
        print(f"{'':34}{'CPU us':>10}{'per core':>10}")
        for name, once in CASES.items():
            asyncio.run(repeat(door, once, max(options.count // 10, 1), options.at_once))
            began_s = family_seconds(door.pid)
            asyncio.run(repeat(door, once, options.count, options.at_once))
            each_s = (family_seconds(door.pid) - began_s) / options.count
            print(f"{name:34}{each_s * 1e6:10.0f}{1 / each_s:10,.0f}", flush=True)


if __name__ == "__main__":
    main()
