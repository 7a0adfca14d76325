"""TLS and client certificates with the clients that people use, and a certificate that is renewed under them.

Laws: a client that trusts the CA and has the certificate that its listener asks for works as without TLS; any other
gets nothing. A renewal is noticed by new connections within 15 s and by no client as an error. Connections that say
nothing keep nobody out.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import ssl
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafscale.runtime.grpc_identity import PemFiles
from kafscale.runtime.ports import free_port
from kafscale.testkit.authority import Authority

from e2e.harness.apache import kafka_version
from e2e.harness.clients import require
from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import Deployment
from e2e.harness.kafka_tools import require_java, tools
from e2e.harness.security_settings import write_java_keystore
from e2e.harness.services import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources the old way
    import kafka

HOST = "127.0.0.1"
COUNT = 200
API_VERSIONS_0 = pack(">ihhih", 10, 18, 0, 9, -1)
RENEWED_TIMEOUT_S = 30.0
SILENT = 5_000

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Secured:
    """A deployment with the listeners SSL (no client certificate) and MUTUAL (one is required)."""

    deployment: Deployment
    ports: dict[str, int]
    servers: Authority
    server: PemFiles
    alice: PemFiles
    stranger: PemFiles

    def bootstrap(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def certificate(self, listener: str) -> PemFiles | None:
        return self.alice if listener == "MUTUAL" else None

    def librdkafka(self, listener: str, certificate: PemFiles | None) -> dict[str, str]:
        own = {"ssl.certificate.location": str(certificate.certificate)} if certificate else {}
        if certificate:
            own["ssl.key.location"] = str(certificate.key)
        return {
            "bootstrap.servers": self.bootstrap(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.servers.ca),
            **own,
        }

    def context(self, certificate: PemFiles | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.servers.ca)
        if certificate is not None:
            context.load_cert_chain(certificate.certificate, certificate.key)
        return context


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    servers, clients = Authority(folder / "servers"), Authority(folder / "clients")
    server = servers.issue("localhost", HOST)
    ports = {"PLAINTEXT": free_port(), "SSL": free_port(), "MUTUAL": free_port()}
    deployment = Deployment(folder / "deployment", partitions=1, on_s3=False)
    env = {
        "KAFSCALE_LISTENERS": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
        "KAFSCALE_SSL_CERTIFICATE": str(server.certificate),
        "KAFSCALE_SSL_KEY": str(server.key),
        "KAFSCALE_SSL_CA": f"MUTUAL={clients.ca}",
        "KAFSCALE_SSL_CLIENT_AUTH": "MUTUAL=required",
    }
    deployment.start_etcd()
    try:
        deployment.start_services(env)
        deployment.wait_ready()
        yield Secured(
            deployment,
            ports,
            servers,
            server,
            clients.client("alice"),
            Authority(folder / "strangers").client("eve"),
        )
    finally:
        deployment.kill()


def make_topic(secured: Secured, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap("PLAINTEXT")})
    for done in admin.create_topics([NewTopic(name, 1, 1)]).values():
        done.result(30)


def by_librdkafka(secured: Secured, listener: str, topic: str) -> list[bytes]:
    config = secured.librdkafka(listener, secured.certificate(listener))
    producer = confluent_kafka.Producer(config)
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < COUNT:
        message = consumer.poll(30)
        assert message is not None, "no record within 30 s"
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    consumer.close()
    return found


def by_kafka_python(secured: Secured, listener: str, topic: str) -> list[bytes]:
    certificate = secured.certificate(listener)
    config = {
        "bootstrap_servers": secured.bootstrap(listener),
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.servers.ca),
        "ssl_certfile": str(certificate.certificate) if certificate else None,
        "ssl_keyfile": str(certificate.key) if certificate else None,
    }
    producer = kafka.KafkaProducer(**config)
    for number in range(COUNT):
        producer.send(topic, b"%d" % number)
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, group_id=topic, **config
    )
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == COUNT:
            break
    consumer.close()
    return found


def by_kcat(secured: Secured, listener: str, topic: str) -> list[bytes]:
    require("kcat", "kcat")
    config = secured.librdkafka(listener, secured.certificate(listener))
    options = [part for name, value in config.items() for part in ("-X", f"{name}={value}")]
    lines = b"".join(b"%d\n" % number for number in range(COUNT))
    subprocess.run(["kcat", "-P", "-t", topic, *options], input=lines, timeout=120, check=True)
    done = subprocess.run(
        ["kcat", "-C", "-t", topic, "-o", "beginning", "-c", str(COUNT), "-q", *options],
        capture_output=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
@pytest.mark.parametrize("client", [by_librdkafka, by_kafka_python, by_kcat])
def test_clients_write_and_read(
    secured: Secured, client: Callable[[Secured, str, str], list[bytes]], listener: str
) -> None:
    topic = f"{client.__name__}-{listener}"
    make_topic(secured, topic)
    assert client(secured, listener, topic) == [b"%d" % number for number in range(COUNT)]


def properties(secured: Secured, listener: str, folder: Path) -> Path:
    """Settings of Java's clients, and of the command."""
    lines = [
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={secured.servers.ca}",
    ]
    certificate = secured.certificate(listener)
    if certificate is not None:
        store = write_java_keystore(certificate)
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
    config = folder / "client.properties"
    config.write_text("\n".join(lines))
    return config


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_javas_tools_work_with_pem_files(secured: Secured, listener: str, tmp_path: Path) -> None:
    require_java()
    config = properties(secured, listener, tmp_path)
    topic = f"java-{listener}"
    with tools(kafka_version(), secured.bootstrap(listener), tmp_path) as java:
        made = java.run(f"kafka-topics --command-config {config} --create --topic {topic}")
        assert made.exit == 0, made.text
        sent = java.run(
            f"kafka-console-producer --command-config {config} --topic {topic} <<< one\ntwo\nthree\n"
        )
        assert sent.exit == 0, sent.text
        offsets = java.run(f"kafka-get-offsets --command-config {config} --topic {topic}")
        assert offsets.text == f"{topic}:0:3"


@pytest.mark.parametrize("listener", ["SSL", "MUTUAL"])
def test_the_command_takes_the_same_file(secured: Secured, listener: str, tmp_path: Path) -> None:
    options = ["--bootstrap-server", secured.bootstrap(listener)]
    options += ["--command-config", str(properties(secured, listener, tmp_path))]
    for line in ("topics list", "groups list"):  # by librdkafka, and by hand
        subprocess.run([*KAFSCALE, *line.split(), *options], timeout=120, check=True)


def reaches(config: dict[str, str]) -> bool:
    """Whether a client gets Metadata."""
    try:
        AdminClient({**config, "log_level": 0}).list_topics(timeout=5)
    except confluent_kafka.KafkaException:
        return False
    return True


def test_any_other_client_gets_nothing(secured: Secured) -> None:
    assert reaches(secured.librdkafka("MUTUAL", secured.alice))
    assert not reaches(secured.librdkafka("MUTUAL", None)), "no certificate"
    assert not reaches(secured.librdkafka("MUTUAL", secured.stranger)), "a certificate of another CA"
    assert not reaches({"bootstrap.servers": secured.bootstrap("SSL")}), "no TLS"
    assert not reaches(secured.librdkafka("PLAINTEXT", None)), "TLS where there is none"
    distrustful = secured.librdkafka("SSL", None) | {"ssl.ca.location": str(secured.stranger.ca)}
    assert not reaches(distrustful), "a client that trusts another CA"


def s_client(secured: Secured, *options: str) -> subprocess.CompletedProcess[str]:
    """A command of docs/security.md."""
    command = ["openssl", "s_client", "-connect", secured.bootstrap("SSL"), *options]
    return subprocess.run(command, input="", capture_output=True, text=True, timeout=30, check=False)


def test_openssl_sees_what_the_page_on_security_says(secured: Secured) -> None:
    good = s_client(secured, "-CAfile", str(secured.servers.ca), "-verify_return_error", "-brief")
    assert good.returncode == 0, good.stderr
    assert "TLSv1.3" in good.stderr
    assert "Verification: OK" in good.stderr
    assert s_client(secured, "-tls1_2", "-brief").returncode == 0
    for option in ("-tls1_1", "-tls1"):
        assert s_client(secured, option, "-cipher", "ALL:@SECLEVEL=0").returncode != 0
    assert s_client(secured, "-tls1_2", "-cipher", "AES128-SHA").returncode != 0


@dataclass(slots=True)
class Visitors:
    """New connections, one after the other, each with a request. Counts the certificates that they see."""

    secured: Secured
    serials: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        context = self.secured.context()
        while not self.stop.is_set():
            try:
                self.serials.append(ask(self.secured.ports["SSL"], context))
            except OSError as error:
                self.failures.append(repr(error))

    def see(self, serial: str) -> Callable[[], bool]:
        """Whether the last of them saw this certificate."""
        return lambda: self.serials[-1:] == [serial]


def ask(port: int, context: ssl.SSLContext) -> str:
    """The serial number of the certificate behind which the answer came. Raises OSError."""
    with (
        socket.create_connection((HOST, port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname=HOST) as client,
    ):
        client.sendall(API_VERSIONS_0)
        if len(client.recv(8)) < 8:
            raise ConnectionResetError("no answer")
        found = client.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


@dataclass(slots=True)
class Writer:
    """An idempotent producer over TLS, and the outcome of each record."""

    producer: confluent_kafka.Producer
    topic: str
    offsets: list[int] = field(default_factory=list)
    errors: list[object] = field(default_factory=list)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.offsets.append(message.offset() or 0)
        else:
            self.errors.append(error)

    def writes_until(self, what: str, condition: Callable[[], bool]) -> None:
        def write() -> bool:
            for _ in range(20):
                self.producer.produce(self.topic, b"x" * 100, on_delivery=self._delivered)
            self.producer.poll(0.05)
            return condition()

        until(what, write, RENEWED_TIMEOUT_S)


def test_a_certificate_is_renewed_under_load_without_a_failed_request(secured: Secured) -> None:
    make_topic(secured, "renewal")
    config = secured.librdkafka("SSL", None) | {"enable.idempotence": "true", "linger.ms": "5"}
    writer = Writer(confluent_kafka.Producer(config), "renewal")
    visitors = Visitors(secured)
    visiting = threading.Thread(target=visitors.run, daemon=True)
    visiting.start()
    try:
        writer.writes_until(
            "clients are served", lambda: bool(visitors.serials) and len(writer.offsets) > 100
        )
        for _ in range(2):
            secured.servers.issue("localhost", HOST, into=secured.server)
            writer.writes_until("the new certificate is served", visitors.see(serial_in(secured.server)))
    finally:
        visitors.stop.set()
        visiting.join(20)
    assert writer.producer.flush(60) == 0
    assert (writer.errors, visitors.failures) == ([], [])
    assert sorted(writer.offsets) == list(range(len(writer.offsets)))
    assert len(set(visitors.serials)) == 3


def serial_in(files: PemFiles) -> str:
    command = ["openssl", "x509", "-noout", "-serial", "-in", str(files.certificate)]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return line.strip().removeprefix("serial=").upper()


def test_silent_connections_keep_nobody_out(secured: Secured) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < SILENT + 500:
        pytest.skip("too few file descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as silent:
        for _ in range(SILENT):
            silent.enter_context(socket.create_connection((HOST, secured.ports["SSL"]), timeout=30))
        assert ask(secured.ports["SSL"], secured.context())
        assert reaches(secured.librdkafka("MUTUAL", secured.alice))


def test_the_log_names_what_was_wrong_and_no_key(secured: Secured) -> None:
    with contextlib.suppress(OSError):
        ask(secured.ports["MUTUAL"], secured.context(secured.stranger))
    log = secured.deployment.services["frontdoor"].log

    def reasons() -> list[str]:
        lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
        return [line["reason"] for line in lines if line.get("kind") == "TLS handshake failed"]

    until("a failed handshake is logged", lambda: bool(reasons()))
    assert "PRIVATE" not in log.read_text()
