"""The clients that people use, by every mechanism, at every kind of listener.

Laws: a client produces and consumes in a group as itself: ACLs give it its own topics and groups, and no others. Its
connections live on through three lifetimes of a session by re-authentication, and no session ends; a client that cannot
re-authenticate connects again, and loses no record. No log has a secret.

`make e2e` runs a thin diagonal: each client once, each mechanism at least once. `make clients-secured` runs all cells.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock

import pytest

from e2e.checkers.group_history import Event, Kind, violations
from e2e.harness.group import Feed, Group, Variant, all_committed
from e2e.harness.law import keep_in_group
from e2e.harness.secured_clients import (
    ASSIGNORS,
    CELLS,
    CONNECTS_AGAIN,
    LIFETIME_MS,
    OPEN,
    PARTITIONS,
    SECURED_CLIENTS,
    Cell,
    SecuredCluster,
    password_of,
    secured_cluster,
)
from e2e.harness.services import until
from e2e.harness.stories import is_selected, told_at_once

LIFETIMES = 3
RECORDS = 100
RECORDS_PER_S = 20
SESSION_MS = 6_000
AT_ONCE = 5
AUDITED_TIMEOUT_S = 30.0
"""The audit log writes repeated lines every 10 s."""
DIAGONAL = {
    "java-OAUTHBEARER-SASL_SSL",
    "java-3.9.2-SCRAM-SHA-256-SASL_SSL",
    "java-2.1.1-PLAIN-SASL_PLAINTEXT",
    "confluent-OAUTHBEARER-SASL_PLAINTEXT",
    "franz-go-PLAIN-SASL_SSL",
    "sarama-SCRAM-SHA-512-SASL_PLAINTEXT",
    "kafka-python-mTLS-MUTUAL",
    "aiokafka-SCRAM-SHA-512-SASL_SSL",
    "kafkajs-mTLS-SSL",
}

pytestmark = pytest.mark.timeout(900)
BUILDING = Lock()


def parameter(cell: Cell) -> object:
    marks = [] if cell.name in DIAGONAL else [pytest.mark.secured]
    if cell.cannot is not None:
        marks.append(pytest.mark.skip(reason=f"{cell.client.name}: {cell.cannot}"))
    return pytest.param(cell, id=cell.name, marks=marks)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured-clients")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stories(
    request: pytest.FixtureRequest, cluster: SecuredCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """One run per selected cell."""
    cells = [cell for cell in CELLS if cell.cannot is None and is_selected(request, cell.name)]
    cluster.prepare(cells)
    folder = tmp_path_factory.mktemp("members")
    with told_at_once(
        {cell.name: partial(tell, cluster, cell, folder) for cell in cells}, AT_ONCE
    ) as futures:
        yield futures


def test_the_diagonal_has_each_client_once_and_each_mechanism() -> None:
    cells = [cell for cell in CELLS if cell.name in DIAGONAL]
    assert len(cells) == len(DIAGONAL)
    assert [cell.client for cell in cells] == list(SECURED_CLIENTS)
    assert {cell.mechanism for cell in cells} == {cell.mechanism for cell in CELLS}
    assert {cell.listener for cell in cells} == {cell.listener for cell in CELLS}


@pytest.mark.parametrize("cell", [parameter(cell) for cell in CELLS])
def test_a_client_produces_consumes_in_a_group_and_authenticates_again(
    stories: dict[str, Future[None]], cell: Cell
) -> None:
    cell.client.require()
    stories[cell.name].result()


def tell(cluster: SecuredCluster, cell: Cell, folder: Path) -> None:
    with BUILDING:  # cells of one client share what is built
        cell.client.command()
    bootstrap, security = cluster.bootstrap(cell.listener), cluster.security(cell)
    cell.client.produce(bootstrap, cell.topic, "none", RECORDS, security)
    variant = Variant(client=cell.client, assignor=ASSIGNORS.get(cell.client.name, "range"))
    group = Group(variant, bootstrap, cell.topic, SESSION_MS, folder, security)
    feed = Feed(cluster.bootstrap(OPEN), cell.topic, PARTITIONS, RECORDS_PER_S)
    try:
        with feed.writing():
            group.join(cell.name)
            group.wait_covered_by(PARTITIONS, cell.name)
            if cell.login is not None:
                cross_lifetimes(cluster, cell, group)
        group.wait_for("all records", lambda events: all_committed(events, feed.ends))
        group.leave(cell.name)
    finally:
        group.end()
    assert sum(feed.ends.values()) > RECORDS, "those of the cell's producer, and of the feed"
    committed = group.committed(PARTITIONS, cluster.bootstrap(OPEN))
    keep_in_group(violations(group.events(), feed.ends, committed, group.gap_max_s), group.story())


def cross_lifetimes(cluster: SecuredCluster, cell: Cell, group: Group) -> None:
    """A session ends LIFETIME_MS after its last login, so what works for longer has logged in again."""
    crossed_at = time.monotonic() + LIFETIMES * LIFETIME_MS / 1000

    def has_crossed(events: list[Event]) -> bool:
        return any(event.kind is Kind.COMMITTED and event.at > crossed_at for event in events)

    group.wait_for(f"a commit after {LIFETIMES} lifetimes", has_crossed)
    again = "session expired" if cell.client.name in CONNECTS_AGAIN else "reauthenticated"
    until(
        f"the audit log has {again!r} {LIFETIMES} times for {cell.name}",
        lambda: cluster.audited(again, cell) >= LIFETIMES,
        AUDITED_TIMEOUT_S,
    )
    never = "reauthenticated" if cell.client.name in CONNECTS_AGAIN else "session expired"
    assert cluster.audited(never, cell) == 0, group.story()


def test_no_log_has_a_secret(cluster: SecuredCluster) -> None:
    said = "".join(path.read_text() for path in (cluster.deployment.folder / "log").glob("*.log"))
    for client in SECURED_CLIENTS:
        for secret in (password_of(client.name), cluster.issuer.secrets[client.name]):
            assert secret not in said
    assert "eyJ" not in said, "the beginning of every token"
