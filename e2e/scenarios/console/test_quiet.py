"""Law: nothing is asked while nobody looks, neither by a page in a hidden tab nor by the console itself."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect

from e2e.harness.cluster import Cluster
from e2e.harness.console_page import Visitor
from e2e.harness.inside import metric
from e2e.harness.secured import done

pytestmark = pytest.mark.timeout(600)
HOUR_MS = 3_600_000
QUIET_S = 20.0
"""Longer than the page of groups waits. That nothing comes can only be seen over time."""
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


def requests(cluster: Cluster) -> int:
    """That the front door has got."""
    (door,) = cluster.inside().instances("frontdoor")
    return int(sum(metric(door.http_address, "kafscale_frontdoor_requests_total").values()))


def test_a_hidden_tab_asks_nothing_and_a_console_without_a_tab_neither(
    cluster: Cluster, visitor: Visitor
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("orders", 3)]))
    del admin
    page = visitor.page
    page.clock.install()
    asked: list[str] = []
    for screen in ("/", "/topics", "/groups"):
        visitor.go(screen)
    expect(page.get_by_text("There is no consumer group yet")).to_be_visible()
    page.evaluate(HIDE, True)
    page.on("request", lambda request: asked.append(request.url))
    page.clock.fast_forward(HOUR_MS)
    assert asked == []
    with page.expect_request("**/api/v1/groups*"):
        page.evaluate(HIDE, False)
        page.clock.fast_forward(HOUR_MS)
    page.close()
    before = requests(cluster)
    time.sleep(QUIET_S)
    assert requests(cluster) == before
