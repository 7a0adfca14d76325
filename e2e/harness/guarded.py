"""A deployment as security-stores.md describes it: each role has its own user in etcd and its own key at the S3 server.

Each role reaches the S3 server through a gate of its own, which notes every request. The tokens of etcd live for two
seconds without use, so that many of them expire.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_program import find_etcd
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.transport import Access
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import KeyRange, identity
from kafscale.storage.rights.objects import Action, grants_of
from kafscale.testkit.seaweed import BUCKET, Identity, SeaweedServer

from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import ROLES, Deployment
from e2e.harness.inside import Inside
from e2e.harness.services import Service
from e2e.harness.store_gate import StoreGate

KEYS: Final = Keyspace()
ROOT: Final = "root"
ETCD_FLAGS: Final = ("--auth-token-ttl=2", "--bcrypt-cost=4")
SECRET: Final = "quiet-as-a-mouse-"
COMMAND_S: Final = 180.0
_WORDS: Final = {Action.LIST: "List", Action.GET: "Read", Action.PUT: "Write", Action.DELETE: "Write"}

Operation = tuple[Action, str]
"""Action and key; of a listing the key is ""."""


@dataclass(slots=True)
class Guarded:
    """`with Guarded.opened(...) as guarded:` has a deployment whose processes are ready."""

    deployment: Deployment
    passwords: Path
    env: dict[Role, dict[str, str]] = field(default_factory=dict)
    seen: dict[Role, set[Operation]] = field(default_factory=lambda: {role: set() for role in Role})
    added: list[Service] = field(default_factory=list)
    with_logins: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    """The address of the listener with SASL, of the front door that is started first."""

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, partitions: int, settings: dict[str, str]) -> Iterator[Guarded]:
        deployment = Deployment(folder, partitions)
        deployment.etcd = EtcdProcess(
            find_etcd(folder / "tools", print),
            folder / "etcd",
            log_path=folder / "log" / "etcd.log",
            extra=ETCD_FLAGS,
        )
        deployment.s3 = SeaweedServer(folder / "s3", [_key(role) for role in Role])
        guarded = cls(deployment, folder / "passwords")
        with ExitStack() as stack:
            stack.callback(guarded._kill)
            deployment.start_etcd()
            deployment.start_s3()
            guarded._guard()
            for role in Role:
                guarded._give(role, stack, settings)
            guarded.env[Role.FRONTDOOR]["KAFSCALE_LISTENERS"] = (
                f"PLAINTEXT://{deployment.bootstrap},SASL_PLAINTEXT://{guarded.with_logins}"
            )
            for name in (*ROLES, Role.UPKEEP):
                deployment.start_services(guarded.env[Role(name)], roles=[name])
            deployment.wait_ready()
            yield guarded

    @property
    def bootstrap(self) -> str:
        return self.deployment.bootstrap

    def inside(self) -> Inside:
        return Inside(self.deployment.etcd.endpoint, user=ROOT, password=SECRET + ROOT)

    def add(self, role: Role) -> Service:
        """One more instance. Returns when it is ready."""
        log = self.deployment.folder / "log" / f"{role}-added-{len(self.added)}.log"
        service = Service.start(role, {**self.deployment.env, **self.env[role]}, log)
        self.added.append(service)
        service.wait_ready()
        return service

    def command(self, *words: str, role: Role = Role.OPERATOR) -> str:
        """The output of `kafscale`, run with the identity of the role."""
        done = subprocess.run(
            [*KAFSCALE, *words],
            env={**os.environ, **self.deployment.env, **self.env[role]},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def sent(self, role: Role) -> set[Operation]:
        """All that the role has asked of the bucket until now."""
        return self.seen[role].copy()  # its gate may add to it at any time

    def logged(self, *texts: str) -> list[str]:
        """Lines of the services' logs with one of the texts."""
        logs = sorted(set((self.deployment.folder / "log").glob("*.log")) - {self.deployment.etcd.log_path})
        lines = (
            f"{log.name}: {line}" for log in logs for line in log.read_text(errors="replace").splitlines()
        )
        return [line for line in lines if any(text in line for text in texts)]

    def restart(self, *roles: Role) -> None:
        """Returns when the first instance of each is ready again."""
        for role in roles:
            assert self.deployment.services[role].stop() == 0
            self.deployment.start_services(self.env[role], roles=[role])
        self.deployment.wait_ready()

    def revoke(self, rights: Mapping[Role, Sequence[KeyRange]]) -> None:
        async def change() -> None:
            root = Access.parse([self.deployment.etcd.endpoint], user=ROOT, password=SECRET + ROOT)
            users = EtcdUsers(root)
            for role, ranges in rights.items():
                for each in ranges:
                    await users.revoke(identity(KEYS, role), each)
            await users.close()

        asyncio.run(change())

    def apply_rights(self) -> None:
        """As an operator does. The first time etcd has no users yet."""
        root = {"KAFSCALE_ETCD_USER": ROOT, "KAFSCALE_ETCD_PASSWORD_FILE": str(self.passwords / ROOT)}
        subprocess.run(
            [*KAFSCALE, "etcd-roles", "--apply", "--passwords", str(self.passwords), "--enable-auth"],
            env={**os.environ, "KAFSCALE_ETCD_ENDPOINTS": self.deployment.etcd.endpoint, **root},
            timeout=COMMAND_S,
            check=True,
        )

    def _guard(self) -> None:
        self.passwords.mkdir()
        for name in (*Role, ROOT):
            (self.passwords / name).write_text(f"{SECRET}{name}\n")
        self.apply_rights()

    def _give(self, role: Role, stack: ExitStack, settings: dict[str, str]) -> None:
        """Its identities and its gate. SeaweedFS knows no key of a role that has no rights."""
        host, _, port = self.deployment.s3.endpoint.removeprefix("http://").partition(":")
        show = self.seen[role].update
        gate = stack.enter_context(
            StoreGate(host, int(port), seed=1, show=lambda request: show(operations(request)))
        )
        self.env[role] = {
            **settings,
            "KAFSCALE_ETCD_USER": identity(KEYS, role),
            "KAFSCALE_ETCD_PASSWORD_FILE": str(self.passwords / role),
            "KAFSCALE_S3_ENDPOINT": gate.endpoint,
            "KAFSCALE_S3_ACCESS_KEY_ID": _key(role).access_key,
            "KAFSCALE_S3_SECRET_ACCESS_KEY": _key(role).secret_key,
        }

    def _kill(self) -> None:
        for service in self.added:
            service.kill()
        self.deployment.kill()


def _key(role: Role) -> Identity:
    """SeaweedFS has no right to delete alone, so a role that may only delete can write there as well."""
    actions = {
        f"{_WORDS[grant.action]}:{BUCKET}" + (f"/{grant.prefix}*" if grant.prefix else "")
        for grant in grants_of(KEYS, role)
    }
    return Identity(access_key=f"key-of-{role}", secret_key=SECRET + role, actions=tuple(sorted(actions)))


def operations(request: bytes) -> Sequence[Operation]:
    """What a request asks of the bucket, in the words of policies."""
    head, _, body = request.partition(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    url = urlsplit(target)
    bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
    assert bucket == BUCKET, target
    query = parse_qs(url.query, keep_blank_values=True)
    match method, bool(key):
        case "GET", False if "list-type" in query:
            return [(Action.LIST, "")]
        case "GET" | "HEAD", True:
            return [(Action.GET, key)]
        case "PUT", True if not query:
            return [(Action.PUT, key)]
        case "DELETE", True if not query:
            return [(Action.DELETE, key)]
        case "POST", False if "delete" in query:
            keys = ElementTree.fromstring(body).iterfind("{*}Object/{*}Key")
            return [(Action.DELETE, each.text or "") for each in keys]
    raise AssertionError(f"no policy has a word for {method} {target}")
