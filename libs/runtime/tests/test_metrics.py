"""Metrics: cheap to count, right when scraped, bounded, and one answer for several workers."""

import asyncio
import re
import subprocess
import sys
from http import HTTPStatus

import pytest
import structlog
from kafscale.runtime.addresses import check_etcd_url, split_address
from kafscale.runtime.clock import LoopWatch
from kafscale.runtime.exposition import LABEL_LENGTH_MAX, expose, merge_expositions
from kafscale.runtime.health import Health, Phase
from kafscale.runtime.http import HttpFace, serving
from kafscale.runtime.metric_table import OWN, counter, gauge, histogram, rows_of
from kafscale.runtime.metrics import CHILDREN_MAX, Metrics
from kafscale.testkit.clock import ManualClock
from prometheus_client.parser import text_string_to_metric_families

TABLE = (
    counter("reads_total", "Reads", "kind"),
    gauge("lag_seconds", "Lag"),
    histogram("wait_seconds", "Waits", bounds=(0.1, 1.0)),
    counter("stalls_total", "Stalls"),
    counter("records_total", "Records", "topic"),
)


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def some_metrics(count: int, lag: float, seconds: float) -> Metrics:
    metrics = Metrics("fetch", TABLE)
    metrics.counters("reads_total").labels("hot").inc(count)
    metrics.gauge("lag_seconds").set(lag)
    metrics.histogram("wait_seconds").observe(seconds)
    metrics.watch("stalls_total", lambda: count)
    return metrics


def test_what_is_counted_is_shown_under_the_service_s_name() -> None:
    shown = samples(expose(some_metrics(3, 0.25, 0.5).read()))
    assert shown["kafscale_fetch_reads_total", (("kind", "hot"),)] == 3
    assert shown["kafscale_fetch_lag_seconds", ()] == 0.25
    assert shown["kafscale_fetch_stalls_total", ()] == 3
    buckets = [shown["kafscale_fetch_wait_seconds_bucket", (("le", le),)] for le in ("0.1", "1.0", "+Inf")]
    assert buckets == [0, 1, 1]
    assert shown["kafscale_fetch_wait_seconds_sum", ()] == 0.5


def test_a_value_on_a_bucket_s_bound_belongs_to_the_bucket() -> None:
    waits = Metrics("fetch", TABLE).histogram("wait_seconds")
    for value in (0.1, 1.0, 1.1):
        waits.observe(value)
    assert waits.counts == [1, 1, 1]


def test_two_metrics_of_one_name_are_a_bug() -> None:
    metrics = Metrics("fetch", TABLE)
    metrics.gauge("lag_seconds")
    with pytest.raises(AssertionError, match="exists already"):
        metrics.gauge("lag_seconds")


def test_what_is_not_in_the_table_cannot_be_made() -> None:
    metrics = Metrics("fetch", TABLE)
    with pytest.raises(AssertionError, match="not in the table"):
        metrics.counter("writes_total")
    with pytest.raises(AssertionError, match="is a gauge"):
        metrics.counter("lag_seconds")
    with pytest.raises(AssertionError, match="has labels"):
        metrics.watch("reads_total", lambda: 0)


@pytest.mark.parametrize("service", OWN)
def test_the_table_is_written_as_prometheus_names_things(service: str) -> None:
    rows = list(rows_of(service))
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name)
        assert row.name.endswith("_total") == (row.kind == "counter")
        assert bool(row.bounds) == (row.kind == "histogram")
        assert row.bounds == tuple(sorted(row.bounds))
        assert not {"job", "instance", "le", "worker"} & {*row.labels}, "Prometheus or the merge owns these"
        assert row.text
        assert not row.text.endswith(".")


def test_a_topic_s_series_end_with_it() -> None:
    records = Metrics("fetch", TABLE).counters("records_total")
    kept = records.labels("kept")
    gone = records.labels("gone")
    records.forget("topic", "gone")
    gone.inc()
    assert records.rows() == [(("kept",), kept)]
    assert records.labels("gone").value == 0, "a new topic of that name begins at nothing"


def test_a_reading_stays_as_it_was() -> None:
    metrics = Metrics("fetch", TABLE)
    waits = metrics.histogram("wait_seconds")
    waits.observe(0.5)
    reading = metrics.read()
    waits.observe(0.5)
    assert samples(expose(reading))["kafscale_fetch_wait_seconds_count", ()] == 1


def test_a_client_cannot_grow_the_number_of_children() -> None:
    family = Metrics("frontdoor", TABLE).counters("reads_total")
    for number in range(CHILDREN_MAX + 50):
        family.labels(number).inc()
    rows = family.rows()
    assert len(rows) == CHILDREN_MAX + 1
    assert dict(rows)[("other",)].value == 50


def test_long_names_of_clients_are_cut_and_stay_apart() -> None:
    metrics = Metrics("fetch", TABLE)
    records = metrics.counters("records_total")
    begin = "g" * 30_000
    for name in (begin + "a", begin + "b", "t" * 249):
        records.labels(name).inc()
    text = expose(metrics.read()).decode()
    names = [
        sample.labels["topic"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "kafscale_fetch_records_total"
    ]
    assert len(set(names)) == 3
    assert "t" * 249 in names
    assert max(map(len, names)) == LABEL_LENGTH_MAX


def test_workers_answer_as_one_sums_added_and_gauges_kept_apart() -> None:
    texts = {
        "1": expose(some_metrics(3, 0.25, 0.05).read()),
        "2": expose(some_metrics(4, 0.5, 0.5).read()),
    }
    shown = samples(merge_expositions(texts))
    assert shown["kafscale_fetch_reads_total", (("kind", "hot"),)] == 7
    assert shown["kafscale_fetch_wait_seconds_count", ()] == 2
    assert shown["kafscale_fetch_wait_seconds_bucket", (("le", "0.1"),)] == 1
    assert shown["kafscale_fetch_lag_seconds", (("worker", "1"),)] == 0.25
    assert shown["kafscale_fetch_lag_seconds", (("worker", "2"),)] == 0.5


def face(clock: ManualClock) -> tuple[HttpFace, Health, LoopWatch]:
    watch = LoopWatch(clock)
    health = Health("fetch")
    return HttpFace(health=health, watch=watch, clock=clock, metrics=some_metrics(1, 0, 0)), health, watch


async def test_ready_is_only_what_is_ready_and_a_phase_never_goes_back() -> None:
    http, health, _ = face(ManualClock())
    seen = []
    for phase in (Phase.WAITING, Phase.STARTING, Phase.READY, Phase.DRAINING, Phase.STOPPED):
        await health.enter(phase)
        seen.append((await http.answer("GET", "/readyz"))[0])
    refused = HTTPStatus.SERVICE_UNAVAILABLE
    assert seen == [refused, refused, HTTPStatus.OK, refused, refused]
    with pytest.raises(AssertionError):
        await health.enter(Phase.READY)


async def test_a_loop_that_stood_still_is_not_alive() -> None:
    clock = ManualClock()
    http, _, watch = face(clock)
    assert (await http.answer("GET", "/livez"))[0] is HTTPStatus.OK
    clock.advance(10_001)
    assert (await http.answer("GET", "/livez"))[0] is HTTPStatus.SERVICE_UNAVAILABLE
    watch.tick()
    assert (await http.answer("GET", "/livez"))[0] is HTTPStatus.OK


async def test_the_metrics_of_workers_are_merged_into_the_answer() -> None:
    http, _, _ = face(ManualClock())

    async def workers() -> dict[str, bytes]:
        return {"1": expose(some_metrics(5, 0, 0).read())}

    http.worker_metrics = workers
    _, _, text = await http.answer("GET", "/metrics")
    assert samples(text)["kafscale_fetch_reads_total", (("kind", "hot"),)] == 6


async def test_metrics_that_cannot_be_read_answer_500_and_say_so_in_the_log() -> None:
    http, _, _ = face(ManualClock())

    async def workers() -> dict[str, bytes]:
        raise RuntimeError("our bug")

    http.worker_metrics = workers
    with structlog.testing.capture_logs() as logged:
        status, _, text = await http.answer("GET", "/metrics")
    assert status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert b"see the log" in text
    assert [line["event"] for line in logged] == ["metrics failed"]


async def ask(address: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*split_address(address))
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_http_answers_what_is_asked_and_survives_what_is_not_http() -> None:
    http, _, _ = face(ManualClock())
    async with serving(http, "127.0.0.1:0") as address:
        answer = await ask(address, b"GET /livez?verbose HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\nok\n")
        assert (await ask(address, b"HEAD /livez HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")
        assert b" 404 " in await ask(address, b"GET /etc/passwd HTTP/1.1\r\n\r\n")
        assert b" 405 " in await ask(address, b"POST /livez HTTP/1.1\r\n\r\n")
        assert await ask(address, b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n") == b""
        assert b" 200 " in await ask(address, b"GET /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("wrong", ["", "9092", "host:", ":1", "host:99999", "host:port"])
def test_an_address_without_host_and_port_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_address(wrong)
    assert split_address("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("::1:9193", "[::1]:9193"),
        (":::9193", "[::]:9193"),
        ("fe80::1%eth0:80", "[fe80::1%eth0]:80"),
        ("2001:db8:0:0:0:0:0:1:9092", "[2001:db8:0:0:0:0:0:1]:9092"),
        ("::1", "[::1]:9092"),
        ("2001:db8::c", "[2001:db8::c]:9092"),
    ],
)
def test_an_ipv6_address_without_brackets_is_refused_and_shown_with_them(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=rf"is not host:port; .* needs brackets, as in {re.escape(right)}$"):
        split_address(wrong)
    for url in (f"http://{wrong}", f"https://{wrong}/", wrong):
        with pytest.raises(ValueError, match=rf"is not http://.*, as in {re.escape(right)}\b"):
            check_etcd_url(url)
    assert check_etcd_url(f"http://{right}") == f"http://{right}"


def test_a_process_starts_without_what_only_scrapes_traces_and_s3_need() -> None:
    """Five services start at once: what they all load and do not need is paid five times."""
    program = (
        "import sys, kafscale.runtime.process\n"
        "print(*sorted({'prometheus_client', 'opentelemetry', 'aiobotocore'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
