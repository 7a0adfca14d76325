"""The etcd of the overlay `production-etcd`, as three processes with the environment of their pods.

Laws: the members find one another over TLS. They let in the certificate that the manifests give to services, and no
client without one. That certificate does not make a member. Only what a cluster would resolve is replaced: a pod's name
by an address of this machine, and cert-manager by an authority of the tests that reads the same Certificates.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import pytest
from kafscale.runtime.etcd_program import find_etcd
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdTls
from kafscale.testkit.authority import Authority

from e2e.checkers.manifests.environment import environment
from e2e.checkers.manifests.objects import Objects, named, workloads
from e2e.harness.manifests import rendered
from e2e.harness.services import dying_with_parent, until

CLIENTS, PEERS, METRICS = 2379, 2380, 2381
TLS: Final = "/etc/etcd/tls"

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Members:
    addresses: Mapping[str, str]
    """By the name of the pod."""
    member: PemFiles
    service: PemFiles

    @property
    def endpoints(self) -> list[str]:
        return [f"https://{address}:{CLIENTS}" for address in self.addresses.values()]

    @property
    def first(self) -> str:
        return next(iter(self.addresses.values()))


def issued(objects: Objects, authority: Authority, name: str, *addresses: str) -> PemFiles:
    """What cert-manager would make of a Certificate; `addresses` stand for names that nothing here resolves."""
    certificate = named(objects, "Certificate", name)
    assert certificate is not None, name
    spec: dict[str, Any] = certificate["spec"]
    names = [*spec.get("dnsNames", ()), *spec.get("ipAddresses", ()), *addresses]
    return authority.issue(*names, common_name=spec.get("commonName"))


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    folder, own, objects = tmp_path_factory.mktemp("etcd"), os.getpid(), rendered("production-etcd")
    [etcd] = [each for each in workloads(objects) if each.name == "etcd"]
    names = [f"etcd-{ordinal}" for ordinal in range(etcd.spec["replicas"])]
    addresses = {
        name: f"127.{200 + own % 50}.{own // 50 % 250}.{at}" for at, name in enumerate(names, start=1)
    }
    authority = Authority(folder / "authority")
    member = issued(objects, authority, "etcd-member", *addresses.values())
    found = Members(addresses, member, issued(objects, authority, "kafscale-etcd-certificate"))
    tls = folder / "tls"
    tls.mkdir()
    for path, name in ((member.certificate, "tls.crt"), (member.key, "tls.key"), (member.ca, "ca.crt")):
        (tls / name).symlink_to(path)
    processes = []
    for name, address in addresses.items():
        data = folder / name
        data.mkdir(mode=0o700)
        env = {
            key: value.replace("0.0.0.0", address).replace("/data", str(data)).replace(TLS, str(tls))
            for key, value in environment(
                objects, etcd, etcd.pod["containers"][0], {"metadata.name": name}
            ).items()
        }
        for other, at in addresses.items():
            env = {key: value.replace(f"{other}.etcd:", f"{at}:") for key, value in env.items()}
        with (folder / f"{name}.log").open("wb") as log:
            command = [*dying_with_parent(), str(find_etcd(folder, print))]
            processes.append(subprocess.Popen(command, env={**os.environ, **env}, stdout=log, stderr=log))
    until("three members have a leader and let a service in", lambda: reached(found), 60.0)
    yield found
    for process in processes:
        process.kill()
        process.wait()


def reached(members: Members) -> bool:
    return all(written(endpoint, members.service) for endpoint in members.endpoints)


def written(endpoint: str, identity: PemFiles) -> bool:
    """Whether this member commits a key of a client with this certificate."""
    return asyncio.run(_written(endpoint, identity))


async def _written(endpoint: str, identity: PemFiles) -> bool:
    tls = EtcdTls(ca=identity.ca, cert=identity.certificate, key=identity.key)
    client = EtcdClient.connect([endpoint], tls=tls)
    try:
        await client.put(b"from", endpoint.encode())
        held = await client.get(b"from")
    except EtcdError:
        return False
    else:
        return held is not None and held.value == endpoint.encode()
    finally:
        await client.close()


def answers(address: str, port: int, authority: Path, identity: PemFiles | None) -> bool:
    """Whether this port answers a request with this certificate."""
    context = ssl.create_default_context(cafile=str(authority))
    if identity is not None:
        context.load_cert_chain(identity.certificate, identity.key)
    connection = HTTPSConnection(address, port, timeout=10, context=context)
    try:
        connection.request("GET", "/version")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def test_every_member_commits_what_a_service_writes(members: Members) -> None:
    assert len(members.endpoints) == 3
    for endpoint in members.endpoints:
        assert written(endpoint, members.service)


def test_only_a_certificate_of_the_authority_opens_the_port_for_clients(
    members: Members, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path).issue("services.kafscale.internal")
    trusted = members.member.ca
    assert answers(members.first, CLIENTS, trusted, members.service)
    assert not answers(members.first, CLIENTS, trusted, None)
    assert not answers(members.first, CLIENTS, trusted, stranger)


def test_a_service_is_no_member(members: Members) -> None:
    trusted = members.member.ca
    assert answers(members.first, PEERS, trusted, members.member)
    assert not answers(members.first, PEERS, trusted, members.service)
