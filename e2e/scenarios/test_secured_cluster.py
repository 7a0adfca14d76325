"""A cluster with SASL_SSL, SCRAM users and ACLs, as an operator starts it, and what real clients can do in it.

Laws: a user with the ACLs produces and consumes in a group, and one without them gets TOPIC_AUTHORIZATION_FAILED. An
administrator's next request sees the change before it. A removed ACL takes effect within seconds, on connections that
are open too. A wrong password is SASL_AUTHENTICATION_FAILED. No log has a password or a key of a user.
"""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from kafscale.access.acl import Operation
from kafscale.console.rights import Admits
from kafscale.console.routes import API
from kafscale.testkit.authority import Authority
from playwright.sync_api import expect

from e2e.harness.apache import kafka_version
from e2e.harness.cluster import KAFSCALE
from e2e.harness.console_page import Visitor, chromium, console_of
from e2e.harness.console_rights import Person, Who, complaint, guarded, path_of
from e2e.harness.deployment import Deployment
from e2e.harness.kafka_tools import require_java, tools
from e2e.harness.secured import done, filter_of, rule, settings_of
from e2e.harness.services import until

HOST = "127.0.0.1"
ADMINS, ALICES, BOBS = "admins-password", "alices-password", "bobs-password"
TIMEOUT_S = 30.0
COMMAND_S = 120.0
SOON_S = 10.0
"""A change of ACLs reaches every process by its watch, usually in milliseconds, but the machine may be busy."""
READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Secured:
    deployment: Deployment
    ca: Path
    folder: Path

    def client(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        """Settings of librdkafka."""
        return settings_of(self.deployment.bootstrap, self.ca, user, password, mechanism)

    def properties(self, user: str, password: str) -> Path:
        """Settings of Java's clients, in a file."""
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        path = self.folder / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={self.ca}\n"
            "sasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={login} required username="{user}" password="{password}";\n'
        )
        return path

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.client("admin", ADMINS))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "tls")
    files = authority.issue(HOST)
    first = folder / "first-users"
    first.write_text(f"admin:{ADMINS}\n")
    deployment = Deployment(folder, 2, on_s3=False)
    try:
        deployment.start_etcd()
        deployment.start_services(
            {
                "KAFSCALE_LISTENERS": f"SASL_SSL://{deployment.bootstrap}",
                "KAFSCALE_SSL_CERTIFICATE": str(files.certificate),
                "KAFSCALE_SSL_KEY": str(files.key),
                "KAFSCALE_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
                "KAFSCALE_AUTHORIZER": "acl",
                "KAFSCALE_SUPER_USERS": "User:admin",
                "KAFSCALE_BOOTSTRAP_USERS_FILE": str(first),
            }
        )
        deployment.wait_ready()
        one = Secured(deployment, authority.ca, folder)
        for mechanism in (
            ScramMechanism.SCRAM_SHA_256,
            ScramMechanism.SCRAM_SHA_512,
        ):  # a user once in a request
            upsertions: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
                for user, password in (("alice", ALICES), ("bob", BOBS))
            ]
            done(one.admin.alter_user_scram_credentials(upsertions))
        yield one
    finally:
        deployment.kill()


@pytest.fixture
def topic(secured: Secured) -> str:
    """A new one to which no ACL applies."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    done(secured.admin.create_topics([NewTopic(name, num_partitions=2)]))
    return name


def refusal(producer: Producer, topic: str) -> int | None:
    """The error of one record, None if it was acknowledged."""
    found: list[KafkaError | None] = []
    producer.produce(topic, b"record", on_delivery=lambda error, _: found.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = found
    return None if error is None else error.code()


def producer_of(secured: Secured, user: str, password: str, **more: Any) -> Producer:
    return Producer({**secured.client(user, password, **more), "message.timeout.ms": 20_000})


def consumer_of(secured: Secured, user: str, password: str, group: str, **more: Any) -> Consumer:
    """A new member of the group."""
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**secured.client(user, password, **more), **settings})


def error_of(consumer: Consumer) -> int | None:
    message = consumer.poll(1.0)
    error = None if message is None else message.error()
    return None if error is None else error.code()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_user_with_the_acls_produces_and_consumes_in_a_group(
    secured: Secured, topic: str, mechanism: str
) -> None:
    rights = [
        rule("alice", WRITE, TOPIC, topic),
        rule("alice", READ, TOPIC, topic),
        rule("alice", READ, GROUP, topic),
    ]
    done(secured.admin.create_acls(rights))
    until(
        "alice may write",
        lambda: refusal(producer_of(secured, "alice", ALICES, mechanism=mechanism), topic) is None,
        SOON_S,
    )
    consumer = consumer_of(secured, "alice", ALICES, topic, mechanism=mechanism)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"record"
        consumer.commit(message=message, asynchronous=False)
        partition = message.partition()
        assert partition is not None
        where = TopicPartition(topic, partition)
        assert consumer.committed([where], timeout=TIMEOUT_S)[0].offset == 1
    finally:
        consumer.close()


def test_a_user_without_acls_can_neither_write_nor_read_nor_see_the_topic(
    secured: Secured, topic: str
) -> None:
    assert refusal(producer_of(secured, "bob", BOBS), topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    done(secured.admin.create_acls([rule("bob", READ, GROUP, topic)]))
    consumer = consumer_of(secured, "bob", BOBS, topic)
    try:
        consumer.subscribe([topic])
        denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
        until("bob may not read", lambda: error_of(consumer) == denied, TIMEOUT_S)
    finally:
        consumer.close()
    other = consumer_of(secured, "bob", BOBS, f"{topic}-other")
    try:
        other.subscribe([topic])
        hidden = KafkaError.GROUP_AUTHORIZATION_FAILED
        until("bob may not join another group", lambda: error_of(other) == hidden, TIMEOUT_S)
    finally:
        other.close()
    seen = AdminClient(secured.client("bob", BOBS)).list_topics(timeout=TIMEOUT_S).topics
    assert topic not in seen
    bob = AdminClient(secured.client("bob", BOBS))  # its answers end with it
    with pytest.raises(KafkaException) as refused:
        done(bob.create_topics([NewTopic("bobs", 1)]))
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_acl_that_is_removed_takes_effect_on_an_open_connection(secured: Secured, topic: str) -> None:
    write = rule("bob", WRITE, TOPIC, topic)
    done(secured.admin.create_acls([write]))
    producer = producer_of(secured, "bob", BOBS)
    until("bob may write", lambda: refusal(producer, topic) is None, SOON_S)
    done(secured.admin.delete_acls([filter_of(write)]))
    assert refusal(producer, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    done(secured.admin.create_acls([write]))
    again = "bob may write again"
    until(again, lambda: refusal(producer_of(secured, "bob", BOBS), topic) is None, SOON_S)


def test_the_next_request_of_an_administrator_sees_the_change_before_it(secured: Secured) -> None:
    """ALTER on the cluster is asked by the front door itself. Bob creates an ACL, because librdkafka hides the error of
    a DescribeAcls response."""
    alter = rule("bob", AclOperation.ALTER, ResourceType.BROKER, "kafka-cluster")
    bobs = rule("bob", READ, TOPIC, "bobs")
    own, bob = secured.admin, AdminClient(secured.client("bob", BOBS))
    for _ in range(5):
        done(own.create_acls([alter]))
        done(bob.create_acls([bobs]))
        done(own.delete_acls([filter_of(alter)]))
        with pytest.raises(KafkaException) as refused:
            done(bob.create_acls([bobs]))
        assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize(("user", "password"), [("alice", BOBS), ("nobody", ALICES)])
def test_a_wrong_password_and_an_unknown_user_are_refused(
    secured: Secured, user: str, password: str, mechanism: str
) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**secured.client(user, password, mechanism), "error_cb": errors.append}
    client = AdminClient(settings)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    until(
        "the client learned why it was refused",
        lambda: client.poll(0.1) >= 0 and any(e.code() == KafkaError._AUTHENTICATION for e in errors),
        TIMEOUT_S,
    )
    assert any("Authentication failed" in error.str() for error in errors)


def test_javas_tools_administer_and_use_the_cluster(secured: Secured, tmp_path: Path) -> None:
    require_java()
    own = secured.properties("admin", ADMINS)
    alice, bob = secured.properties("alice", ALICES), secured.properties("bob", BOBS)
    with tools(kafka_version(), secured.deployment.bootstrap, tmp_path) as jvm:
        assert jvm.run(f"kafka-topics --command-config {own} --create --topic java --partitions 1").exit == 0
        add = f"kafka-acls --command-config {own} --add --allow-principal User:alice --topic java"
        assert jvm.run(f"{add} --producer").exit == 0
        assert jvm.run(f"{add} --consumer --group java").exit == 0
        produced = jvm.run(f"kafka-console-producer --producer.config {alice} --topic java <<< one")
        assert "Exception" not in produced.text, produced.text
        read = "--topic java --group java --from-beginning --max-messages 1 --timeout-ms 60000"
        assert "one" in jvm.run(f"kafka-console-consumer --consumer.config {alice} {read}").out
        refused = jvm.run(f"kafka-acls --command-config {bob} --list")
        assert "ClusterAuthorizationException" in refused.text, refused.text
        wrong = secured.properties("alice", BOBS)
        assert "Authentication failed" in jvm.run(f"kafka-topics --command-config {wrong} --list").text


def test_the_command_takes_the_file_of_javas_tools(secured: Secured, topic: str) -> None:
    own, bob = secured.properties("admin", ADMINS), secured.properties("bob", BOBS)
    for line in (f"topics describe {topic}", f"configs describe {topic} --all", "groups list", "acls list"):
        done = kafscale(secured, line, own)
        assert done.returncode == 0, (line, done.stderr)
    users = json.loads(kafscale(secured, "users list --output json", own).stdout)
    assert {"admin", "alice", "bob"} <= {each["user"] for each in users}
    assert kafscale(secured, f"produce {topic}", own, "one\n").stderr == "1 record acknowledged\n"
    assert kafscale(secured, f"consume {topic} --exit", own).stdout == "one\n"
    assert "CLUSTER_AUTHORIZATION_FAILED" in kafscale(secured, "users list", bob).stderr
    assert topic not in kafscale(secured, "topics list", bob).stdout


@pytest.mark.parametrize("line", ["topics list", "produce orders", "consume orders --exit"])
def test_the_command_ends_with_a_sentence_where_it_is_not_let_in(secured: Secured, line: str) -> None:
    wrong = secured.properties("alice", BOBS)
    refused = kafscale(secured, line, wrong, "one\n")
    assert refused.returncode == 1
    assert "Authentication failed" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    stranger = secured.folder / "stranger.properties"
    lines = wrong.read_text().replace(str(secured.ca), str(Authority(secured.folder / "stranger").ca))
    stranger.write_text(lines)
    untrusted = kafscale(secured, line, stranger, "one\n")
    assert untrusted.returncode == 1
    assert "certificate verify failed" in untrusted.stderr
    for each in (refused, untrusted):
        assert BOBS not in each.stdout + each.stderr


def kafscale(secured: Secured, line: str, config: Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KAFSCALE, *line.split(), "--command-config", str(config)],
        env={**os.environ, "KAFSCALE_BOOTSTRAP_SERVERS": secured.deployment.bootstrap},
        input=lines,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def test_no_log_has_a_secret_and_the_audit_log_has_what_was_refused(secured: Secured) -> None:
    said = "".join(path.read_text() for path in (secured.deployment.folder / "log").glob("*.log"))
    for secret in (ADMINS, ALICES, BOBS):
        assert secret not in said
    for line in (
        '"event":"authentication failed"',
        '"event":"denied"',
        '"event":"altered"',
        '"change":"store credential"',
        '"change":"delete ACL"',
        '"principal":"User:bob"',
    ):
        assert line in said


@pytest.fixture
def console(secured: Secured) -> Iterator[str]:
    """Everyone logs in. It reads etcd and the store too."""
    config = secured.folder / "console.properties"
    config.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={secured.ca}\n"
    )
    options = ["--bootstrap-server", secured.deployment.bootstrap, "--command-config", str(config)]
    with console_of(options, secured.deployment.env) as url:
        yield url


def test_every_route_of_the_console_shows_a_person_what_kafka_lets_them_see(
    secured: Secured, topic: str, console: str
) -> None:
    """Generated from the rows. alice has DESCRIBE on one topic and on one group; the administrator may all."""
    secret = f"secret-{topic}"
    done(secured.admin.create_topics([NewTopic(secret, num_partitions=1)]))
    describe = AclOperation.DESCRIBE
    acls = [rule("alice", describe, TOPIC, topic), rule("alice", describe, GROUP, topic)]
    done(secured.admin.create_acls(acls))
    nobody, alice, admin = Person(console), Person(console), Person(console)
    assert alice.log_in("alice", "wrong") == HTTPStatus.UNAUTHORIZED
    assert alice.log_in("alice", ALICES) == HTTPStatus.OK
    assert admin.log_in("admin", ADMINS) == HTTPStatus.OK
    until("alice sees the topic", lambda: alice.ask("GET", f"{API}/topics/{topic}").status == 200, SOON_S)
    wrong: list[str | None] = []
    for row in guarded():
        own, foreign = path_of(row, topic=topic, group=topic), path_of(row, topic=secret, group=secret)
        answers = {Who.NOBODY: nobody.ask(row.method, own), Who.OWNER: alice.ask(row.method, own)}
        if own != foreign:
            answers[Who.FOREIGNER] = alice.ask(row.method, foreign)
        if (
            row.method == "GET"
        ):  # with an empty body the others are refused for that, or would change the cluster
            answers[Who.ADMIN] = admin.ask(row.method, own)
        wrong += [complaint(row, who, answers[who], frozenset({Operation.DESCRIBE})) for who in answers]
        if secret.encode() in answers[Who.NOBODY].body + answers[Who.OWNER].body:
            wrong.append(f"{row.method} {row.path} names another's topic or group")
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert secret.encode() in admin.ask("GET", f"{API}/topics").body
    assert f'"{topic}"'.encode() in alice.ask("GET", f"{API}/topics").body


@pytest.mark.parametrize("describes", [False, True])
def test_a_look_at_lists_is_no_denial_in_the_audit_log(
    secured: Secured, topic: str, console: str, describes: bool
) -> None:
    """The console asks only for what the lists of its user have. One user has no right at all. The other may DESCRIBE
    the cluster and one topic, so the list of groups has every group, and this user may describe one of two."""
    who = f"looks-{describes}"
    upsertion = UserScramCredentialUpsertion(
        who, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), b"their-password"
    )
    done(secured.admin.alter_user_scram_credentials([upsertion]))
    own, foreign = f"own-{topic}", f"foreign-{topic}"
    for group in (own, foreign):
        offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
        done(secured.admin.alter_consumer_group_offsets([offsets]))
    if describes:
        on = ((ResourceType.BROKER, "kafka-cluster"), (TOPIC, topic), (GROUP, own))
        done(secured.admin.create_acls([rule(who, AclOperation.DESCRIBE, *each) for each in on]))
    person = Person(console)
    until("the user exists", lambda: person.log_in(who, "their-password") == HTTPStatus.OK, SOON_S)
    if describes:
        sees = f"{API}/topics/{topic}"
        until("the ACLs count", lambda: person.ask("GET", sees).status == HTTPStatus.OK, SOON_S)
    before = len(denials(secured, who))  # of ACLs that did not count yet
    for row in guarded():
        if row.method == "GET" and "{" not in row.path and (describes or row.needs is Admits.LOGIN):
            person.ask(row.method, path_of(row))
    if describes:
        groups = json.loads(person.ask("GET", f"{API}/groups?rows=500").body)["items"]
        assert {own, foreign} <= {row["group"] for row in groups}
        deletion = person.ask("GET", f"{API}/topics/{topic}/deletion")
        assert deletion.status == HTTPStatus.OK
        assert b"cannot be read" not in deletion.body
    person.ask("GET", f"{API}/topics/{uuid.uuid4().hex}")  # a name that a person types is asked for
    typed = "the audit log has what the user typed, and nothing else"
    until(typed, lambda: len(denials(secured, who)) > before, TIMEOUT_S)
    assert ["TOPIC:LITERAL" in line for line in denials(secured, who)[before:]] == [True]


SCREENS = (
    "/", "/topics", "/topics/{topic}", "/topics/{topic}/partitions", "/topics/{topic}/configs",
    "/topics/{topic}/groups", "/topics/{topic}/change", "/groups", "/groups/{topic}", "/sql", "/access",
    "/access/acls", "/access/quotas", "/transactions", "/storage", "/cost", "/health",
)  # fmt: skip


def test_a_person_with_few_rights_sees_their_own_names_and_sentences_in_the_browser(
    secured: Secured, topic: str, console: str
) -> None:
    """bob may read one topic and describe one group. Each screen opens, none names what is not bob's, and what bob may
    not see is a sentence."""
    foreign = f"secret-{topic}"
    done(secured.admin.create_topics([NewTopic(foreign, num_partitions=1)]))
    for group in (topic, foreign):
        offsets = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])
        done(secured.admin.alter_consumer_group_offsets([offsets]))
    acls = [rule("bob", READ, TOPIC, topic), rule("bob", AclOperation.DESCRIBE, GROUP, topic)]
    done(secured.admin.create_acls(acls))
    with chromium() as browser:
        visitor = Visitor(browser.new_context().new_page(), console)
        page, statuses = visitor.page, list[int]()
        visitor.expected |= {"401", "403"}
        page.on("response", lambda answer: statuses.append(answer.status))
        page.goto(console)
        page.get_by_label("User").fill("bob")
        page.get_by_label("Password").fill(BOBS)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("link", name="Topics").first).to_be_visible()
        refused: dict[str, str] = {}
        for screen in SCREENS:
            visitor.go(screen.format(topic=topic))
            expect(page.locator("[aria-busy=true]")).to_have_count(0)
            page.wait_for_load_state("networkidle")
            assert foreign not in page.content(), screen
            if (alert := page.get_by_role("alert")).count():
                refused[screen] = alert.first.inner_text()
        assert max(statuses) < HTTPStatus.INTERNAL_SERVER_ERROR
        own = {"/", "/topics", "/topics/{topic}", "/groups", "/groups/{topic}", "/sql", "/transactions"}
        assert not own & refused.keys(), refused
        assert {"/access", "/access/acls", "/storage", "/cost", "/health"} <= refused.keys()
        assert all("user bob may not" in sentence for sentence in refused.values()), refused
        visitor.check()


def denials(secured: Secured, user: str) -> list[str]:
    """Their lines of the audit log."""
    logs = (secured.deployment.folder / "log").glob("*.log")
    lines = (line for path in logs for line in path.read_text().splitlines())
    return [line for line in lines if f"User:{user}" in line and '"event":"denied"' in line]
