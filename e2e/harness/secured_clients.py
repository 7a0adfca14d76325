"""The table of clients, mechanisms and listeners: its cells, and a cluster that has all listeners at once.

A cell is a client that gets in by one mechanism at one listener. SASL needs a listener with SASL, and a certificate one
with TLS, so `SSL` has mTLS alone and `SASL_PLAINTEXT` has no mTLS. At `MUTUAL`, which is SASL_SSL, clients need a
certificate and a login; there the login names the client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.runtime.ports import free_port
from kafscale.testkit.authority import Authority

from e2e.harness.clients import CLIENTS, Client, java_program
from e2e.harness.deployment import Deployment
from e2e.harness.security_settings import (
    OAUTHBEARER,
    Security,
    Tokens,
    java,
    librdkafka,
    old_java,
    plain,
    write_java_keystore,
    write_json,
    write_old_java_stores,
    write_properties,
)
from e2e.harness.token_issuer import AUDIENCE, TokenIssuer, issuing

HOST = "127.0.0.1"
OPEN = "PLAINTEXT"
"""For the harness: who comes there may do everything."""
PROTOCOLS = {
    OPEN: "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "MUTUAL": "SASL_SSL",
}
CERTIFICATES_AT = ("SSL", "MUTUAL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
MUTUAL_TLS = "mTLS"
LIFETIME_MS = 4_000
PARTITIONS = 2
OLDER_JAVA = "3.9.2"
OLD_JAVA = "2.1.1"
"""Before re-authentication (2.2) and PEM files (2.7)."""
ADMIN_TIMEOUT_S = 60.0


def _java(version: str) -> Client:
    return Client(
        name=f"java-{version}",
        codecs=("none",),
        needs=("java", "mvn"),
        command=lambda: java_program(version),
    )


_BY_NAME = {client.name: client for client in CLIENTS}
SECURED_CLIENTS: tuple[Client, ...] = (
    _BY_NAME["java"],
    _java(OLDER_JAVA),
    _java(OLD_JAVA),
    _BY_NAME["confluent"],
    _BY_NAME["franz-go"],
    _BY_NAME["sarama"],
    _BY_NAME["kafka-python"],
    _BY_NAME["aiokafka"],
    _BY_NAME["kafkajs"],
)
ASSIGNORS = {"aiokafka": "roundrobin", "kafkajs": "roundrobin"}
"""That of the others is `range`."""
CONNECTS_AGAIN = {
    f"java-{OLD_JAVA}": "it is older than KIP-368, so its connections end with their sessions",
    "aiokafka": "it does not read session_lifetime_ms, so its connections end with their sessions",
}
"""The clients that cannot re-authenticate (KIP-368), and why."""
NO_TOKENS = "it gets no tokens by itself: its user has to write a callback handler"
CANNOT = {(f"java-{OLD_JAVA}", OAUTHBEARER): NO_TOKENS}
"""Mechanisms that a client does not have, and why. Their cells are skipped with these words."""


@dataclass(frozen=True, slots=True)
class Cell:
    client: Client
    mechanism: str
    listener: str

    @property
    def name(self) -> str:
        return f"{self.client.name}-{self.mechanism}-{self.listener}"

    @property
    def topic(self) -> str:
        """Its client alone has the right to it."""
        return f"{self.client.name}.{self.mechanism}.{self.listener}"

    @property
    def cannot(self) -> str | None:
        """Why the client does not have the mechanism."""
        return CANNOT.get((self.client.name, self.mechanism))

    @property
    def login(self) -> str | None:
        """The mechanism of SASL. At MUTUAL it is the one that most users have."""
        if self.mechanism != MUTUAL_TLS:
            return self.mechanism
        return "SCRAM-SHA-512" if self.listener == "MUTUAL" else None


COMBINATIONS = (
    *((mechanism, listener) for mechanism in MECHANISMS for listener in ("SASL_PLAINTEXT", "SASL_SSL")),
    *((MUTUAL_TLS, listener) for listener in CERTIFICATES_AT),
)
CELLS = tuple(
    Cell(client, mechanism, listener) for client in SECURED_CLIENTS for mechanism, listener in COMBINATIONS
)


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    deployment: Deployment
    ports: Mapping[str, int]
    servers: Authority
    clients: Authority
    issuer: TokenIssuer
    folder: Path

    def bootstrap(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def certificate(self, user: str) -> PemFiles:
        return PemFiles(
            self.clients.folder / f"{user}.pem", self.clients.folder / f"{user}.key", self.clients.ca
        )

    def security(self, cell: Cell) -> Path:
        """The file that says how the cell's client gets in."""
        user, protocol = cell.client.name, PROTOCOLS[cell.listener]
        tokens = Tokens(
            file=self.folder / f"{user}.token",
            url=self.issuer.token_url,
            ca=self.issuer.ca,
            secret=self.issuer.secrets[user],
        )
        settings = Security(
            protocol=protocol,
            user=user,
            password=password_of(user),
            tokens=tokens,
            ca=self.servers.ca if protocol.endswith("SSL") else None,
            own=self.certificate(user) if cell.listener in CERTIFICATES_AT else None,
            mechanism=cell.login,
        )
        return _written(cell, settings, self.folder / cell.name)

    def audited(self, event: str, cell: Cell) -> int:
        """How often the audit log has this of the cell's member of a group. Repetitions may come 10 s late."""
        wanted = {
            "event": event,
            "client_id": cell.name,
            "principal": f"User:{cell.client.name}",
            "mechanism": cell.login,
            "listener": cell.listener,
        }
        count = 0
        for line in self.deployment.services["frontdoor"].log.read_text().splitlines():
            if cell.name in line:
                found = json.loads(line)
                if wanted.items() <= found.items():
                    count += found.get("repeated", 1)
        return count

    def prepare(self, cells: list[Cell]) -> None:
        """Their topics, and the rights of their clients to these and to the groups that read them."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap(OPEN)})
        rights = [
            AclBinding(
                kind,
                prefix,
                ResourcePatternType.PREFIXED,
                f"User:{client.name}",
                "*",
                AclOperation.ALL,
                AclPermissionType.ALLOW,
            )
            for client in SECURED_CLIENTS
            for kind, prefix in (
                (ResourceType.TOPIC, f"{client.name}."),
                (ResourceType.GROUP, f"group-of-{client.name}."),
            )
        ]
        topics = [NewTopic(cell.topic, num_partitions=PARTITIONS) for cell in cells]
        for future in [*admin.create_acls(rights).values(), *admin.create_topics(topics).values()]:
            future.result(ADMIN_TIMEOUT_S)


def password_of(user: str) -> str:
    """With what PLAIN, SCRAM and JAAS could confuse with their own signs."""
    return f"{user}'s =2C, 1 =pass:word;"


def _written(cell: Cell, settings: Security, path: Path) -> Path:
    if cell.client.name.startswith("java"):
        words = old_java if cell.client.name == f"java-{OLD_JAVA}" else java
        return write_properties(words(settings), path.with_name(f"{path.name}.properties"))
    write = librdkafka if cell.client.name == "confluent" else plain
    return write_json(write(settings), path.with_name(f"{path.name}.json"))


@contextmanager
def secured_cluster(folder: Path) -> Iterator[SecuredCluster]:
    """Runs in the block: all listeners, the users with their certificates, tokens and passwords, and ACLs in force."""
    users = [client.name for client in SECURED_CLIENTS]
    servers, clients = Authority(folder / "servers"), Authority(folder / "clients")
    server = servers.issue("localhost", HOST)
    first_users = folder / "first-users"
    first_users.write_text("".join(f"{user}:{password_of(user)}\n" for user in users))
    deployment = Deployment(folder / "deployment", PARTITIONS, on_s3=False)
    with issuing(folder / "issuer", {user: f"secret-of-{user}" for user in users}) as issuer:
        for user in users:
            own = clients.client(user)
            write_java_keystore(own)
            write_old_java_stores(servers.ca, own)
            (folder / f"{user}.token").write_text(issuer.token(user))
        ports = {listener: free_port() for listener in PROTOCOLS}
        cluster = SecuredCluster(deployment, ports, servers, clients, issuer, folder)
        try:
            deployment.start_etcd()
            deployment.start_services(
                {
                    **_listeners(ports),
                    "KAFSCALE_SSL_CERTIFICATE": str(server.certificate),
                    "KAFSCALE_SSL_KEY": str(server.key),
                    **_certificates(clients.ca),
                    **_logins(issuer),
                    "KAFSCALE_BOOTSTRAP_USERS_FILE": str(first_users),
                    "KAFSCALE_AUTHORIZER": "acl",
                    "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
                    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
                }
            )
            deployment.wait_ready()
            yield cluster
        finally:
            deployment.kill()


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
    return {
        "KAFSCALE_LISTENERS": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": protocols,
    }


def _certificates(ca: Path) -> dict[str, str]:
    """Clients show theirs where one is required, and the name in it is the user's."""
    return {
        "KAFSCALE_SSL_CA": ",".join(f"{listener}={ca}" for listener in CERTIFICATES_AT),
        "KAFSCALE_SSL_CLIENT_AUTH": ",".join(f"{listener}=required" for listener in CERTIFICATES_AT),
        "KAFSCALE_SSL_PRINCIPAL_MAPPING_RULES": "RULE:^.*CN=([^,]+).*$/$1/",
    }


def _logins(issuer: TokenIssuer) -> dict[str, str]:
    return {
        "KAFSCALE_SASL_ENABLED_MECHANISMS": ",".join(MECHANISMS),
        "KAFSCALE_CONNECTIONS_MAX_REAUTH_MS": str(LIFETIME_MS),
        "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": issuer.jwks_url,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": issuer.url,
        "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
        "SSL_CERT_FILE": str(issuer.ca),  # the authorities of the front door's requests to the issuer
    }
