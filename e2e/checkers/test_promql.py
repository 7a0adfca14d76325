"""The checker of queries reports metrics that no service exports, and accepts exported ones."""

import pytest

from e2e.checkers.promql import (
    LEGEND_LABEL,
    OWNED,
    BadQuery,
    check_text,
    exported,
    labels_of_query,
)

NAMES = exported()
SECONDS = "kafscale_frontdoor_request_seconds"


@pytest.mark.parametrize(
    ("query", "labels"),
    [
        ("sum by (api) (rate(kafscale_frontdoor_requests_total[1m]))", {"api"}),
        (f"histogram_quantile(0.9, sum by (le, api) (rate({SECONDS}_bucket[1m])))", {"api"}),
        (f"sum(rate({SECONDS}_sum[1m])) / sum(rate({SECONDS}_count[1m]))", set()),
        ("topk(3, sum by (topic) (rate(kafscale_produce_bytes_total[1m])))", {"topic"}),
        ('count_values by (group) ("status", kafka_consumergroup_group_status > 1)', {"group", "status"}),
        ('up{job="fetch"} == 0', OWNED),
        ("time() - max by (task) (kafscale_upkeep_last_run_timestamp_seconds)", {"task"}),
    ],
)
def test_what_is_exported_passes_and_its_labels_are_followed(query: str, labels: set[str]) -> None:
    assert labels_of_query(query, NAMES) == labels


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("kafscale_frontdoor_request_total", "exported by nobody"),
        (f"rate({SECONDS}[1m])", "exported by nobody"),
        ('kafscale_produce_errors_total{error="x"}', "no label"),
        ("sum by (topic) (sum by (api) (kafscale_fetch_requests_total))", "no label"),
        ("sum by (topic) (kafscale_produce_owned_partitions)", "no label"),
        (f"histogram_quantile(0.9, sum by (api) (rate({SECONDS}_bucket[1m])))", "lost its buckets"),
        ("up == on (topic) kafscale_produce_bytes_total", "no label"),
        ("sum(", "sum"),
        ('{job="fetch"}', "no name"),
    ],
)
def test_what_nobody_exports_is_seen(query: str, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        labels_of_query(query, NAMES)


def test_a_legend_tells_only_what_the_query_leaves() -> None:
    check_text("{{api}} of it", LEGEND_LABEL, frozenset({"api"}))
    with pytest.raises(BadQuery, match="topic"):
        check_text("{{topic}}", LEGEND_LABEL, frozenset({"api"}))
