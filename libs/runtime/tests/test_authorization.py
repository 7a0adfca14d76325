"""Which principal is asked about, and what a denial writes to the audit log and the metric."""

from __future__ import annotations

import pytest
import structlog
from kafscale.access.acl import ResourceType
from kafscale.access.authorizer import SUPPORTED_MASKS, Authorizer
from kafscale.access.rules import Need, Side, When, needs_of
from kafscale.runtime.authorization import EVERYTHING, Altered, Authorization
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.testkit.acls import ALICE, acl, allowing, authorizer
from kafscale.wire.apis import ApiKey

NAMED, BY_ID, ALL, CREATION = needs_of(ApiKey.METADATA, Side.SERVICE)
CREATE, DESCRIBE_CONFIGS = needs_of(ApiKey.CREATE_TOPICS)
PRODUCER_ID = next(
    need for need in needs_of(ApiKey.INIT_PRODUCER_ID) if need.when is When.NO_TRANSACTIONAL_ID
)


def meta(principal: str | None = ALICE, peer: str | None = "127.0.0.1:5") -> RequestMeta:
    return RequestMeta(
        connection_id=1,
        api_key=int(ApiKey.METADATA),
        api_version=1,
        listener="SASL",
        principal=principal,
        peer=peer,
    )


def denials(authorization: Authorization) -> dict[str, int]:
    return {labels[0]: tally.value for labels, tally in authorization._denials.rows()}


def test_without_an_authorizer_everything_is_allowed_and_nothing_is_asked() -> None:
    asker = Authorization(None, Metrics("admin")).of(meta())
    assert asker is EVERYTHING
    assert asker.allows(NAMED, "orders")
    assert asker.denied(NAMED, ["orders"]) == frozenset()
    assert asker.operations(ResourceType.TOPIC, "orders") == SUPPORTED_MASKS[ResourceType.TOPIC]


@pytest.mark.parametrize(
    ("host", "peer", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:9", True),
        ("127.0.0.2", "127.0.0.1:9", False),
        ("0:0:0:0:0:0:0:1", "::1:9", True),
        ("127.0.0.1", "::ffff:127.0.0.1:9", True),
        ("*", "no address", True),
        ("*", None, True),
        ("127.0.0.1", None, False),
    ],
)
def test_the_host_is_the_clients_address_as_java_prints_it(
    host: str, peer: str | None, allowed: bool
) -> None:
    authorization = Authorization(authorizer(acl(host=host)), Metrics("admin"))
    assert bool(authorization.of(meta(peer=peer)).operations(ResourceType.TOPIC, "orders")) is allowed


async def test_a_request_without_a_principal_is_anonymous() -> None:
    decides = authorizer(acl(principal="User:ANONYMOUS"))
    authorization = Authorization(decides, Metrics("admin"))
    assert authorization.of(meta(None)).allows(NAMED, "orders")
    assert not authorization.of(meta()).allows(NAMED, "orders")
    authorization.close()


async def test_each_name_is_asked_once_and_each_denial_is_reported_once() -> None:
    authorization = Authorization(allowing("TOPIC mine READ"), Metrics("admin"))
    with structlog.testing.capture_logs() as logs:
        asker = authorization.of(meta())
        assert asker.denied(NAMED, ["theirs", "mine", "theirs", "absent"]) == {"theirs", "absent"}
    assert denials(authorization) == {"Metadata": 2}
    assert [one["resource"] for one in logs] == ["TOPIC:LITERAL:theirs", "TOPIC:LITERAL:absent"]
    authorization.close()


@pytest.mark.parametrize("need", [ALL, DESCRIBE_CONFIGS])
def test_what_an_answer_leaves_out_is_not_reported(need: Need) -> None:
    authorization = Authorization(authorizer(), Metrics("admin"))
    with structlog.testing.capture_logs() as logs:
        assert authorization.of(meta()).denied(need, ["a", "b"]) == {"a", "b"}
    assert (logs, denials(authorization)) == ([], {})


REPORTS: list[tuple[Authorizer, Need, str, dict[str, str]]] = [
    (
        authorizer(),
        NAMED,
        "orders",
        {"operation": "DESCRIBE", "resource": "TOPIC:LITERAL:orders", "rule": "DefaultDeny"},
    ),
    (
        authorizer(acl("TOPIC:PREFIXED:or DESCRIBE", deny=True, principal="User:*")),
        NAMED,
        "orders",
        {
            "operation": "DESCRIBE",
            "resource": "TOPIC:LITERAL:orders",
            "rule": "MatchingAcl(TOPIC:PREFIXED:or User:* * DENY DESCRIBE)",
        },
    ),
    (
        authorizer(),
        CREATE,
        "orders",
        {"operation": "CREATE", "resource": "TOPIC:LITERAL:orders", "rule": "DefaultDeny"},
    ),
    (
        authorizer(),
        PRODUCER_ID,
        "",
        {"operation": "IDEMPOTENT_WRITE", "resource": "CLUSTER:LITERAL:kafka-cluster", "rule": "DefaultDeny"},
    ),
]


@pytest.mark.parametrize(("decides", "need", "name", "fields"), REPORTS)
async def test_a_denial_is_reported_with_who_what_and_why(
    decides: Authorizer, need: Need, name: str, fields: dict[str, str]
) -> None:
    authorization = Authorization(decides, Metrics("admin"))
    with structlog.testing.capture_logs() as logs:
        assert not authorization.of(meta()).allows(need, name)
    who = {"principal": ALICE, "host": "127.0.0.1", "listener": "SASL", "api": "Metadata"}
    assert logs == [{"event": "denied", "log_level": "info", **who, **fields}]
    authorization.close()


async def test_equal_denials_are_counted_in_the_metric_and_summed_in_the_log() -> None:
    authorization = Authorization(authorizer(), Metrics("admin"))
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            authorization.of(meta()).allows(NAMED, "orders")
        authorization.close()
    assert [one.get("repeated") for one in logs] == [None, 4]
    assert denials(authorization) == {"Metadata": 5}


GRANTS: list[tuple[Authorizer, Need, str, dict[str, str]]] = [
    (
        allowing("TOPIC orders READ"),
        NAMED,
        "orders",
        {
            "operation": "DESCRIBE",
            "resource": "TOPIC:LITERAL:orders",
            "rule": f"MatchingAcl(TOPIC:LITERAL:orders {ALICE} * ALLOW READ)",
        },
    ),
    (
        allowing("CLUSTER kafka-cluster CREATE"),
        CREATE,
        "orders",
        {
            "operation": "CREATE",
            "resource": "CLUSTER:LITERAL:kafka-cluster",
            "rule": f"MatchingAcl(CLUSTER:LITERAL:kafka-cluster {ALICE} * ALLOW CREATE)",
        },
    ),
    (
        allowing("TOPIC orders WRITE"),
        PRODUCER_ID,
        "",
        {"operation": "WRITE", "resource": "TOPIC:ANY:"},
    ),
]


@pytest.mark.parametrize(("decides", "need", "name", "fields"), GRANTS)
async def test_at_debug_a_grant_is_reported_with_the_right_that_gave_it(
    decides: Authorizer, need: Need, name: str, fields: dict[str, str]
) -> None:
    authorization = Authorization(decides, Metrics("admin"), grants=True)
    with structlog.testing.capture_logs() as logs:
        assert authorization.of(meta()).allows(need, name)
    who = {"principal": ALICE, "host": "127.0.0.1", "listener": "SASL", "api": "Metadata"}
    assert logs == [{"event": "granted", "log_level": "debug", **who, **fields}]
    authorization.close()


async def test_at_debug_denials_stay_the_same_and_what_an_answer_leaves_out_is_not_reported() -> None:
    authorization = Authorization(allowing("TOPIC mine READ"), Metrics("admin"), grants=True)
    with structlog.testing.capture_logs() as logs:
        asker = authorization.of(meta())
        assert asker.denied(NAMED, ["theirs", "mine", "mine"]) == {"theirs"}
        assert not asker.allows(NAMED, "theirs")
        assert asker.denied(ALL, ["mine"]) == frozenset()
        authorization.close()
    assert [(one["event"], one["resource"], one.get("repeated")) for one in logs] == [
        ("denied", "TOPIC:LITERAL:theirs", None),
        ("granted", "TOPIC:LITERAL:mine", None),
        ("denied", "TOPIC:LITERAL:theirs", 1),
    ]
    assert denials(authorization) == {"Metadata": 2}


async def test_without_debug_a_grant_has_no_line() -> None:
    authorization = Authorization(allowing("TOPIC mine READ"), Metrics("admin"))
    with structlog.testing.capture_logs() as logs:
        assert authorization.of(meta()).allows(NAMED, "mine")
    assert logs == []
    authorization.close()


async def test_every_alteration_has_its_own_line_whatever_else_is_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafscale.runtime.audit.LINES_MAX", 1)
    authorization = Authorization(authorizer(), Metrics("admin"))
    done = [Altered(change="create ACL", target="T" * 3_000, outcome="NONE")] * 250
    with structlog.testing.capture_logs() as logs:
        await authorization.altered(meta(), done)
        await authorization.altered(meta(None, None), done[:1])
    who = {"principal": ALICE, "host": "127.0.0.1", "listener": "SASL", "api": "Metadata"}
    what = {"change": "create ACL", "target": "T" * 3_000, "outcome": "NONE"}
    assert logs[:-1] == [{"event": "altered", "log_level": "info", **who, **what}] * 250
    assert logs[-1]["principal"] == "User:ANONYMOUS"
