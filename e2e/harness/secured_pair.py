"""KafScale and Apache Kafka with the same users and an authorizer, for tests that compare what users may do.

Each has two listeners. On PLAINTEXT every client is the super user ANONYMOUS, who prepares what a test needs. On
SASL_PLAINTEXT clients log in with PLAIN or SCRAM. The users are made at the start, with a SCRAM credential each. Kafka
reads the passwords of PLAIN from its configuration; KafScale checks them against the SCRAM credentials.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.access.acl import AclBinding
from kafscale.runtime.ports import free_port
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    alter_user_scram_credentials,
    create_acls,
    sasl_authenticate,
    sasl_handshake,
)

from e2e.harness.apache import ApacheKafka
from e2e.harness.deployment import Deployment
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.side_by_side import KAFKA_FEATURES, KAFKA_SETTINGS, KAFSCALE_SETTINGS, write_once

SUPER_USERS: Final = "User:ANONYMOUS;User:root"
HOST: Final = "127.0.0.1"
SHA_256, ITERATIONS, SALT = 1, 4_096, b"a salt for tests"
ACLS_IN_A_REQUEST: Final = 100
_LOGIN: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    name: str
    plain: str
    """Where every client is a super user."""
    sasl: str
    """Where clients log in."""

    def connect(self, user: str) -> Raw:
        """A connection on which the user has logged in."""
        raw = Raw.to(self.sasl)
        shaken = ask(raw, sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.NONE
        token = sasl_authenticate.SaslAuthenticateRequest(
            auth_bytes=f"\0{user}\0{password_of(user)}".encode()
        )
        answered = ask(raw, sasl_authenticate, 2, token)
        assert answered.error_code == ErrorCode.NONE, (self.name, user, answered.error_message)
        return raw

    def create_users(self, users: Sequence[str]) -> None:
        """With a SCRAM credential each."""
        schema = alter_user_scram_credentials
        with Raw.to(self.plain) as raw:
            made = schema.AlterUserScramCredentialsRequest(upsertions=[_credential(user) for user in users])
            results = ask(raw, schema, 0, made).results
            assert {each.error_code for each in results} == {ErrorCode.NONE}, results

    def create_acls(self, acls: Sequence[AclBinding]) -> None:
        """In their order."""
        with Raw.to(self.plain) as raw:
            for start in range(0, len(acls), ACLS_IN_A_REQUEST):
                part = acls[start : start + ACLS_IN_A_REQUEST]
                wanted = create_acls.CreateAclsRequest(creations=[_creation(acl) for acl in part])
                results = ask(raw, create_acls, 3, wanted).results
                assert {each.error_code for each in results} == {ErrorCode.NONE}, results


def password_of(user: str) -> str:
    return f"the-password-of-{user}"


def properties(folder: Path, user: str, mechanism: str = "PLAIN", password: str = "") -> Path:
    """Settings of Java's clients, in a file: the value of --command-config."""
    login = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    path = folder / f"{user}-{mechanism}-{len(password)}.properties"
    write_once(
        path,
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={_LOGIN}.{login} required "
        f'username="{user}" password="{password or password_of(user)}";\n',
    )
    return path


def _creation(acl: AclBinding) -> create_acls.CreateAclsRequestAclCreation:
    return create_acls.CreateAclsRequestAclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


@contextmanager
def secured_pair(folder: Path, users: Iterable[str]) -> Iterator[tuple[System, System]]:
    """KafScale and Apache Kafka. `users` may contain letters, digits and hyphens."""
    users = list(users)
    with ExitStack() as stack:
        ours = stack.enter_context(_kafscale(folder / "kafscale", users))
        yield ours, stack.enter_context(_kafka(folder / "kafka", users))


@contextmanager
def _kafscale(folder: Path, users: Sequence[str]) -> Iterator[System]:
    deployment = Deployment(folder, 1, on_s3=False)
    system = System(name="KafScale", plain=deployment.bootstrap, sasl=f"{HOST}:{free_port()}")
    try:
        deployment.start_etcd()
        deployment.start_services(
            {
                **KAFSCALE_SETTINGS,
                "KAFSCALE_LISTENERS": f"PLAINTEXT://{system.plain},SASL_PLAINTEXT://{system.sasl}",
                "KAFSCALE_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "KAFSCALE_AUTHORIZER": "acl",
                "KAFSCALE_SUPER_USERS": SUPER_USERS,
            }
        )
        deployment.wait_ready()
        system.create_users(users)
        yield system
    finally:
        deployment.kill()


def _credential(
    user: str,
) -> alter_user_scram_credentials.AlterUserScramCredentialsRequestCredentialUpsertion:
    return alter_user_scram_credentials.AlterUserScramCredentialsRequestCredentialUpsertion(
        name=user,
        mechanism=SHA_256,
        iterations=ITERATIONS,
        salt=SALT,
        salted_password=hashlib.pbkdf2_hmac("sha256", password_of(user).encode(), SALT, ITERATIONS),
    )


@contextmanager
def _kafka(folder: Path, users: Sequence[str]) -> Iterator[System]:
    port = free_port()
    system = System(name="Apache Kafka", plain=f"{HOST}:{port}", sasl=f"{HOST}:{free_port()}")
    listeners = f"PLAINTEXT://{system.plain},SASL_PLAINTEXT://{system.sasl}"
    controller = f"CONTROLLER://{HOST}:{free_port()}"
    of_listener = "listener.name.sasl_plaintext"
    passwords = " ".join(f'user_{user}="{password_of(user)}"' for user in users)
    scram = f"{_LOGIN}.scram.ScramLoginModule required;"
    server = ApacheKafka(
        folder,
        flush_before_ack=False,
        port=port,
        settings={
            **KAFKA_SETTINGS,
            "controller.quorum.voters": f"1@{controller.removeprefix('CONTROLLER://')}",
            "listeners": f"{listeners},{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{of_listener}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {passwords};",
            f"{of_listener}.scram-sha-256.sasl.jaas.config": scram,
            f"{of_listener}.scram-sha-512.sasl.jaas.config": scram,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER_USERS,
        },
        features=KAFKA_FEATURES,
        heap="512m",
    )
    try:
        server.start()
        system.create_users(users)
        yield system
    finally:
        server.stop()
