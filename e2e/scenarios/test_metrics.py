"""Metrics of a running system: each service exports exactly its table, and what dashboards and alerts name is there.

Laws: names, kinds and labels at /metrics are those of the table, no more and no less; a deleted topic's series end;
every query of a dashboard or an alert names what is exported, and a real Prometheus answers it; no alert is wrong about
a system that works, and one about an instance that is away comes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.runtime.metric_table import EVERY_PROCESS, OWN, rows_of
from kafscale.testkit.prometheus import PrometheusServer, find_prometheus
from prometheus_client.parser import text_string_to_metric_families

from e2e.checkers.promql import (
    ALERT_LABEL,
    HISTOGRAM_SERIES,
    LEGEND_LABEL,
    check_text,
    counters_chosen,
    exported,
    labels_of_query,
)
from e2e.harness.cluster import Cluster
from e2e.harness.inside import get, metric
from e2e.harness.services import until

ROOT: Final = Path(__file__).resolve().parents[2]
BOARDS: Final = sorted((ROOT / "observe" / "grafana" / "dashboards").glob("*.json"))
ALERTS: Final = ROOT / "observe" / "prometheus" / "alerts.yml"
ALERT_CASES: Final = ROOT / "observe" / "prometheus" / "alerts_test.yml"
RUNBOOK: Final = ROOT / "docs" / "operations.md"
PAGES: Final = sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "metrics.md")
NAME: Final = re.compile(rf"`(kafscale_(?:{'|'.join(OWN)})_\w+|kafka_consumergroup_\w+|process_\w+)")
VARIABLE: Final = re.compile(r"\$(?!__)\w+")
"""Of a dashboard; ".*" is the value of All."""
TOPIC, GONE, GROUP = "orders", "gone", "billing"
COUNT: Final = 200
WAIT_S: Final = 60.0
NAMES: Final = exported()
QUIET: Final = re.compile(
    r"_errors_total|connections_closed|stepdowns|upkeep_failures|uncleanable|expires_seconds|group_status"
    r"|authentications_total|denials_total|group_lost|uncommitted_lag"
)
"""What has no series while nothing is wrong."""

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True, slots=True)
class Query:
    """Where the docs name a metric, and the labels that they give it."""

    place: str
    expr: str
    text: str
    labels: re.Pattern[str]


def panels() -> Iterator[Query]:
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                expr = VARIABLE.sub(".*", target["expr"].replace("$__rate_interval", "1m"))
                yield Query(f"{path.stem}: {panel['title']}", expr, target["legendFormat"], LEGEND_LABEL)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def alert_queries() -> Iterator[Query]:
    for rule in rules():
        yield Query(rule["alert"], rule["expr"], rule["annotations"]["summary"], ALERT_LABEL)


@pytest.mark.parametrize("query", [*panels(), *alert_queries()], ids=lambda query: query.place)
def test_a_query_names_what_is_exported(query: Query) -> None:
    check_text(query.text, query.labels, labels_of_query(query.expr, NAMES))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_names_what_is_exported(path: Path) -> None:
    bases = {name.removesuffix(end) for name in NAMES.series for end in ("", *HISTOGRAM_SERIES)}
    assert {*NAME.findall(path.read_text())} - bases == set()


def test_every_panel_has_a_unit_and_says_what_to_do() -> None:
    for path in BOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            assert panel["description"].endswith(".")
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    headings = re.findall(r"^## (Kafscale\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_each_alert_has_a_case_in_which_it_comes_and_one_in_which_it_does_not() -> None:
    cases = [
        case for test in yaml.safe_load(ALERT_CASES.read_text())["tests"] for case in test["alert_rule_test"]
    ]
    names = {rule["alert"] for rule in rules()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


def test_alerts_come_when_they_should_and_not_before() -> None:
    for command in (["check", "rules", str(ALERTS)], ["test", "rules", str(ALERT_CASES)]):
        done = subprocess.run(
            [find_prometheus("promtool"), *command], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["prometheus.yml", "kubernetes.yml"])
def test_prometheus_accepts_what_it_is_to_scrape(name: str, tmp_path: Path) -> None:
    """Debian's Prometheus is built without Kubernetes, so it reads the file without where the pods come from."""
    scraped = yaml.safe_load(ALERTS.with_name(name).read_text())
    for job in scraped["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs", [{"role": "pod"}]) == [{"role": "pod"}]
    file = tmp_path / name
    file.write_text(yaml.safe_dump(scraped))
    command = [str(find_prometheus("promtool")), "check", "config", "--syntax-only", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Has done a little of everything, a mistake and a deletion as well."""
    env = {"KAFSCALE_LAG_EVERY_MS": "1000", "KAFSCALE_RETENTION_EVERY_MS": "1000"}
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("metrics") / "data", env=env)
    cluster.start()
    try:
        live(cluster)
        yield cluster
    finally:
        cluster.kill()


def live(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, 2), NewTopic(GONE, 1)]).values():
        future.result(WAIT_S)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(WAIT_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(TOPIC, b"x" * 100, partition=number % 2)
        producer.produce(GONE, b"x")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC, GONE])
    read: list[object] = []

    def polled() -> bool:
        read.extend(message for message in consumer.consume(100, timeout=0.5) if message.error() is None)
        return len(read) == 2 * COUNT

    until("the group has read everything", polled, WAIT_S)
    consumer.commit(asynchronous=False)
    consumer.close()


def addresses(cluster: Cluster) -> dict[str, list[str]]:
    return {role: [i.http_address for i in cluster.inside().instances(role)] for role in OWN}


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """One of the targets is an instance that is away."""
    targets = addresses(cluster)
    targets["admin"].append("127.0.0.1:1")
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), targets, [ALERTS]) as server:
        yield server


@pytest.mark.parametrize("service", OWN)
def test_a_service_exports_exactly_its_table(cluster: Cluster, service: str) -> None:
    (address,) = addresses(cluster)[service]
    if service == "upkeep":
        until("lag is shown", lambda: bool(metric(address, "kafka_consumergroup_group_lag")))
    status, text = get(address, "/metrics")
    assert status == 200
    families = {
        family.name + "_total" * (family.type == "counter"): family
        for family in text_string_to_metric_families(text)
    }
    table = {row.exposed(service): row for row in (*rows_of(service), *EVERY_PROCESS)}
    assert {name: family.type for name, family in families.items()} == {
        name: row.kind for name, row in table.items()
    }
    for name, family in families.items():
        assert family.documentation
        for sample in family.samples:
            assert {*sample.labels} - {"le"} == {*table[name].labels}, name


def test_what_an_alert_counts_is_there_before_it_happens(cluster: Cluster) -> None:
    chosen = [each for query in alert_queries() for each in counters_chosen(query.expr)]
    assert len(chosen) > 1
    for name, labels in chosen:
        (address,) = addresses(cluster)[name.split("_")[1]]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        assert any(all(each in series for each in wanted) for series in metric(address, name)), name


def test_requests_and_errors_are_told_by_kafka_s_names(cluster: Cluster) -> None:
    (admin,), (coordinator,), (produce,), (fetch,) = (
        addresses(cluster)[role] for role in ("admin", "coordinator", "produce", "fetch")
    )
    errors = metric(admin, "kafscale_admin_errors_total")
    assert errors['api="CreateTopics",code="TOPIC_ALREADY_EXISTS"}'] == 1
    assert metric(coordinator, "kafscale_coordinator_requests_total")['api="OffsetCommit"}'] > 0
    assert metric(coordinator, "kafscale_coordinator_rebalances_total")[""] > 0
    assert metric(produce, "kafscale_produce_records_total") == {
        f'topic="{topic}"}}': COUNT for topic in (TOPIC, GONE)
    }
    assert metric(fetch, "kafscale_fetch_records_total")[f'topic="{TOPIC}"}}'] == COUNT


def test_every_query_is_answered_and_no_alert_is_wrong(prometheus: PrometheusServer) -> None:
    until("every service was scraped", lambda: len(prometheus.query("up == 1")) == len(OWN))
    for query in alert_queries():
        prometheus.query(query.expr)
    for query in panels():
        prometheus.query(query.expr)
        if QUIET.search(query.expr) is None:
            until(f"{query.place} shows something", partial(_shows, prometheus, query.expr))
    until("rules are judged", lambda: {rule["health"] for rule in prometheus.alerts().values()} == {"ok"})
    until(
        "the alert for the missing instance is pending",
        lambda: prometheus.alerts()["KafscaleInstanceDown"]["state"] != "inactive",
    )
    told = {name: rule["state"] for name, rule in prometheus.alerts().items() if rule["state"] != "inactive"}
    assert told == {"KafscaleInstanceDown": "pending"}


def _shows(prometheus: PrometheusServer, expr: str) -> bool:
    return bool(prometheus.query(expr))


def test_the_series_of_a_deleted_topic_end(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([GONE])[GONE].result(WAIT_S)
    (produce,), (fetch,) = (addresses(cluster)[role] for role in ("produce", "fetch"))
    for address, name in ((produce, "kafscale_produce_records_total"), (fetch, "kafscale_fetch_bytes_total")):
        until(f"{name} of it is gone", partial(_only, TOPIC, address, name))


def _only(topic: str, address: str, name: str) -> bool:
    return {labels.split('"')[1] for labels in metric(address, name)} == {topic}
