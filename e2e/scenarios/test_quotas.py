"""Client quotas on a cluster of real processes: set by Apache Kafka's tools and by ours, and kept by real clients.

Laws: kafka-configs prints the same for KafScale and for an Apache Kafka beside it. A producer and a consumer that go as
fast as they can get no more than their quota and 10 %; `make quotas`, on a quiet machine, also wants no less than their
quota less 10 %, and several processes that share a quota. Requests of a client without a quota do not wait for
those of clients that are throttled. Topics and connections beyond a rate are refused as in Kafka.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from kafscale.wire.apis import ApiKey
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import alter_client_quotas, api_versions, create_topics, module_of

from e2e.harness.apache import kafka_version
from e2e.harness.bystander import Bystander
from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.kafka_tools import Tools, require_java, tools
from e2e.harness.paced import RECORD_BYTES, PacedConsumer, PacedProducer, filled, steady_rate
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import (
    FETCH_V,
    PRODUCE_V,
    TOPIC,
    ask,
    batch,
    create,
    fetch_body,
    produce_body,
    send,
)
from e2e.harness.services import until
from e2e.harness.side_by_side import masked, side_by_side

ALTER = "kafka-configs --alter"
USERS, CLIENTS, IPS = ("--entity-type users", "--entity-type clients", "--entity-type ips")
CAROL, APP, ADDRESS = (
    f"{USERS} --entity-name carol",
    f"{CLIENTS} --entity-name app",
    f"{IPS} --entity-name 10.0.0.1",
)
STORY = (
    f"{ALTER} {CAROL} --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
    "kafka-configs --describe --user carol",
    f"{ALTER} {USERS} --entity-default --add-config request_percentage=12.5",
    f"{ALTER} {APP} --add-config consumer_byte_rate=4096",
    f"{ALTER} {CLIENTS} --entity-default --add-config producer_byte_rate=512",
    f"{ALTER} {CAROL} {APP} --add-config controller_mutation_rate=5",
    f"{ALTER} {CAROL} {CLIENTS} --entity-default --add-config producer_byte_rate=99",
    f"{ALTER} {ADDRESS} --add-config connection_creation_rate=10",
    f"{ALTER} {IPS} --entity-default --add-config connection_creation_rate=20",
    f"kafka-configs --describe {USERS}",
    f"kafka-configs --describe {CLIENTS}",
    f"kafka-configs --describe {IPS}",
    f"kafka-configs --describe {CAROL} {CLIENTS}",
    f"kafka-configs --describe {USERS} --entity-default",
    "kafka-configs --describe --ip 10.0.0.1",
    "kafka-configs --describe --client-defaults",
    f"{ALTER} {CAROL} --add-config producer_byte_rate=-1",
    f"{ALTER} {CAROL} --add-config producer_byte_rate=0.5",
    f"{ALTER} {CAROL} --add-config producer_byte_rate=much",
    f"{ALTER} {CAROL} --add-config connection_creation_rate=1",
    f"{ALTER} {ADDRESS} --add-config producer_byte_rate=1",
    f"{ALTER} {CAROL} --delete-config producer_byte_rate",
    f"kafka-configs --describe {CAROL}",
    f"{ALTER} {CAROL} --delete-config producer_byte_rate  again",
    f"{ALTER} {CAROL} --delete-config consumer_byte_rate",
    f"{ALTER} {USERS} --entity-default --delete-config request_percentage",
    f"{ALTER} {APP} --delete-config consumer_byte_rate",
    f"{ALTER} {CLIENTS} --entity-default --delete-config producer_byte_rate",
    f"{ALTER} {CAROL} {APP} --delete-config controller_mutation_rate",
    f"{ALTER} {CAROL} {CLIENTS} --entity-default --delete-config producer_byte_rate",
    f"{ALTER} {ADDRESS} --delete-config connection_creation_rate",
    f"{ALTER} {IPS} --entity-default --delete-config connection_creation_rate",
    f"kafka-configs --describe {USERS}  with nothing left",
    f"kafka-configs --describe {CLIENTS}  with nothing left",
    f"kafka-configs --describe {IPS}  with nothing left",
)
WINDOW = {"KAFSCALE_QUOTA_WINDOW_NUM": "3"}
"""A window of 2 to 3 s in place of 10 to 11, so that a few seconds show what a minute shows otherwise."""
PRODUCED, CONSUMED = 200_000, 300_000
WARM_S, MEASURED_S = 6.0, 15.0
MINUTE_WARM_S, MINUTE_S = 25.0, 60.0
"""With Kafka's window: two windows to settle, then the minute."""
TENTH = 0.1
COMMAND_TIMEOUT_S = 120.0

pytestmark = pytest.mark.timeout(600)


def quotas(cluster: Cluster, line: str) -> str:
    """`kafscale quotas …`: standard output and error."""
    answer = subprocess.run(
        [*KAFSCALE, "quotas", *line.split(), "--bootstrap-server", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert answer.returncode == 0, (line, answer.stdout, answer.stderr)
    return answer.stdout + answer.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("quotas") / "data", env=WINDOW)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


def new_topic(cluster: Cluster, partitions: int = 1) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # its answers end with it
    admin.create_topics([NewTopic(name, partitions)])[name].result(60)
    return name


def test_kafkas_tool_says_the_same_of_quotas_as_for_an_apache_kafka(tmp_path: Path) -> None:
    require_java()
    version = kafka_version()
    with (
        side_by_side(tmp_path) as bootstraps,
        tools(version, bootstraps[0], tmp_path) as ours,
        tools(version, bootstraps[1], tmp_path) as theirs,
        ThreadPoolExecutor() as pool,
    ):

        def story(jvm: Tools) -> list[list[str]]:
            return [masked(jvm.run(line.split("  ")[0]).text) for line in STORY]

        said, expected = pool.map(story, (ours, theirs))
    for line, one, other in zip(STORY, said, expected, strict=True):
        assert one == other, line


def test_our_command_sets_lists_and_removes_what_kafkas_tool_sees(cluster: Cluster) -> None:
    quotas(cluster, "set producer_byte_rate=1024 consumer_byte_rate=2048 --user dave --client-defaults")
    quotas(cluster, "set connection_creation_rate=100000 --ip 10.0.0.9")
    rows = json.loads(quotas(cluster, "list --user dave --output json"))
    assert [(row["client-id"], row["quota"], row["value"]) for row in rows] == [
        ("<default>", "consumer_byte_rate", 2048.0),
        ("<default>", "producer_byte_rate", 1024.0),
    ]
    assert "removed producer_byte_rate" in quotas(
        cluster, "remove producer_byte_rate --user dave --client-defaults"
    )
    assert "removed consumer_byte_rate" in quotas(cluster, "remove --user dave --client-defaults")
    quotas(cluster, "remove --ip 10.0.0.9")
    assert "no quota fits" in quotas(cluster, "list --user dave")


def test_a_producer_gets_no_more_than_its_quota_and_a_tenth(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    quotas(cluster, f"set producer_byte_rate={PRODUCED} --client paced-producer")
    with PacedProducer(cluster.bootstrap, topic, "paced-producer") as producer:
        rate = producer.rate_over(MEASURED_S, WARM_S)
    assert 0 < rate <= PRODUCED * (1 + TENTH)


def test_a_consumer_gets_no_more_than_its_quota_and_a_tenth(cluster: Cluster) -> None:
    topic = new_topic(cluster)
    filled(cluster.bootstrap, topic, 20 * CONSUMED // RECORD_BYTES)
    quotas(cluster, f"set consumer_byte_rate={CONSUMED} --client paced-consumer")
    with PacedConsumer(cluster.bootstrap, topic, "paced-consumer") as consumer:
        rate = consumer.rate_over(MEASURED_S, WARM_S)
    assert 0 < rate <= CONSUMED * (1 + TENTH)


def test_a_client_without_a_quota_does_not_wait_for_those_that_are_throttled(cluster: Cluster) -> None:
    with Raw.to(cluster.bootstrap) as raw:
        until("the topic is there", lambda: create(raw, TOPIC, partitions=2) in (0, 36))
        until("it takes records", lambda: send(raw, batch()) == 0)
        until("all of it", lambda: send(raw, batch(), part=1) == 0)
    quotas(cluster, "set producer_byte_rate=20000 --client-defaults")
    quotas(cluster, "set producer_byte_rate=100000000 --client raw")
    topic = new_topic(cluster)

    def latencies() -> dict[str, float]:
        bystander = Bystander(cluster.bootstrap)
        bystander.start()
        until("it has been watched", lambda: len(bystander.seconds["produce"]) >= 30)
        bystander.stop()
        assert bystander.errors == []
        return {kind: median(times) for kind, times in bystander.seconds.items()}

    alone = latencies()
    with (
        PacedProducer(cluster.bootstrap, topic, "noisy-1") as first,
        PacedProducer(cluster.bootstrap, topic, "noisy-2") as second,
    ):
        until("they are throttled", lambda: len(first.arrivals) > 50 and len(second.arrivals) > 50)
        beside = latencies()
    quotas(cluster, "remove --client-defaults")
    slower = {kind: (alone[kind], beside[kind]) for kind in alone if beside[kind] > 2 * alone[kind] + 0.05}
    assert slower == {}


def test_topics_beyond_the_rate_are_refused_and_the_next_ones_are_made_later(cluster: Cluster) -> None:
    quotas(cluster, "set controller_mutation_rate=2 --client raw")

    def code_of(partitions: int) -> int:
        name = f"made-{uuid.uuid4().hex[:8]}"
        topic = create_topics.CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=1
        )
        with Raw.to(cluster.bootstrap) as raw:
            request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            (result,) = ask(raw, create_topics, 7, request).topics
        return int(result.error_code)

    exceeded = KafkaError.THROTTLING_QUOTA_EXCEEDED
    until("the bucket of 22 partitions is empty", lambda: code_of(24) == exceeded)
    until("it is filled again", lambda: code_of(1) == 0, 60)
    quotas(cluster, "remove controller_mutation_rate --client raw")


def test_a_throttled_client_is_answered_with_the_time_and_then_not_read(cluster: Cluster) -> None:
    quotas(cluster, "set request_percentage=0.0001 --client busy")
    with Raw.to(cluster.bootstrap) as raw:
        body = api_versions.encode_request(api_versions.ApiVersionsRequest(), 3)
        for _ in range(2):
            began = time.monotonic()
            raw.request(api_versions.API_KEY, 3, body, client_id="busy")
            answer = api_versions.decode_response(raw.answer_to(api_versions.API_KEY, 3), 3)
            assert answer.throttle_time_ms == 1_000
        assert time.monotonic() - began > 0.9, "the second request was read when the time was over"
    quotas(cluster, "remove --client busy")


def test_connections_of_an_address_beyond_its_quota_are_closed(cluster: Cluster) -> None:
    quotas(cluster, "set connection_creation_rate=5 --ip 127.0.0.1")
    body = api_versions.encode_request(api_versions.ApiVersionsRequest(), 0)
    served = 0
    with ExitStack() as stack:
        for raw in [stack.enter_context(Raw.to(cluster.bootstrap)) for _ in range(60)]:
            raw.request(api_versions.API_KEY, 0, body)
            with suppress(Closed, OSError):
                raw.answer()
                served += 1
    assert 1 <= served <= 30, "a window of 3 s has 15, and the machine may be slow"

    def removed() -> bool:
        """Our command needs a connection too."""
        line = ["remove", "--ip", "127.0.0.1", "--bootstrap-server", cluster.bootstrap]
        return subprocess.run([*KAFSCALE, "quotas", *line], capture_output=True, check=False).returncode == 0

    until("the quota is removed", removed, 60)


def test_a_connection_for_each_request_gets_no_more_than_the_quota(cluster: Cluster) -> None:
    """Two at a time, each of which opens a connection, produces once, and closes it."""
    topic = new_topic(cluster)
    quotas(cluster, f"set producer_byte_rate={PRODUCED} --client raw")
    records = build_batch([Record(timestamp=1_700_000_000_000, value=bytes(PRODUCED // 2))])
    began = time.monotonic()
    accepted: list[int] = []

    def produce_until_the_end() -> None:
        while time.monotonic() < began + MEASURED_S:
            with Raw.to(cluster.bootstrap) as raw:
                accepted.append(send(raw, records, topic=topic))

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(produce_until_the_end) for _ in range(2)]:
            done.result()
    took_s = time.monotonic() - began
    quotas(cluster, "remove --client raw")
    assert set(accepted) == {0}
    window_s, at_once = 3, 2
    assert len(accepted) * PRODUCED / 2 <= PRODUCED * (took_s + window_s + at_once)


def set_for_all_clients(raw: Raw, key: str, value: float) -> None:
    entity = alter_client_quotas.AlterClientQuotasRequestEntity("client-id", None)
    op = alter_client_quotas.AlterClientQuotasRequestOp(key, value, remove=value == 0)
    entry = alter_client_quotas.AlterClientQuotasRequestEntry([entity], [op])
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    (done,) = ask(raw, alter_client_quotas, 1, request).entries
    assert done.error_code == 0, done.error_message


def throttle_times(bootstrap: str) -> dict[str, int]:
    """In the answers to requests far above their quotas, in ms. Each request has its own connection."""
    records = build_batch([Record(timestamp=1_700_000_000_000, value=bytes(100_000))])
    times: dict[str, int] = {}
    with Raw.to(bootstrap) as raw:
        create(raw, TOPIC, replication=1)
        until("the topic takes records", lambda: send(raw, records) == 0)

    def measure(quota: str, value: float, key: int, version: int, body: bytes) -> None:
        with Raw.to(bootstrap) as raw:
            set_for_all_clients(raw, quota, value)

        def is_throttled() -> bool:
            """A broker knows a quota a moment after the controller has stored it."""
            with Raw.to(bootstrap) as raw:
                answer = module_of(key).decode_response(raw.ask(key, version, [body]), version)
            times[quota] = answer.throttle_time_ms
            return bool(times[quota])

        until(f"{quota} throttles", is_throttled)
        with Raw.to(bootstrap) as raw:
            set_for_all_clients(raw, quota, 0)

    measure("producer_byte_rate", 1_000, ApiKey.PRODUCE, PRODUCE_V, produce_body((TOPIC, 0, records)))
    measure("consumer_byte_rate", 1_000, ApiKey.FETCH, FETCH_V, fetch_body(part_bytes=1_000))
    asked = b"".join(api_versions.encode_request(api_versions.ApiVersionsRequest(), 3))
    measure("request_percentage", 1e-6, ApiKey.API_VERSIONS, 3, asked)
    return times


def test_one_request_far_above_its_quota_is_throttled_as_long_as_by_an_apache_kafka(tmp_path: Path) -> None:
    """Kafka bounds only the throttle times of request_percentage, by one sample."""
    require_java()
    with side_by_side(tmp_path) as (ours, theirs):
        said, expected = throttle_times(ours), throttle_times(theirs)
    assert said == pytest.approx(expected, rel=0.01)
    assert said["request_percentage"] == 1_000
    assert said["producer_byte_rate"] > 80_000 < said["consumer_byte_rate"]


def together(cluster: Cluster, partitions: int, each: int = 1) -> float:
    """The rate of producers of one client id, `each` on every partition."""
    topic = new_topic(cluster, partitions)
    quotas(cluster, f"set producer_byte_rate={PRODUCED} --client paced-producer")
    with ExitStack() as stack:
        producers = [
            stack.enter_context(PacedProducer(cluster.bootstrap, topic, "paced-producer", partition))
            for partition in range(partitions)
            for _ in range(each)
        ]
        producers[0].rate_over(MINUTE_S, MINUTE_WARM_S)
        arrivals = sorted(one for producer in producers for one in producer.arrivals)
    return steady_rate(arrivals, arrivals[-1][0] - MINUTE_S)


@pytest.mark.chaos
def test_the_workers_of_a_front_door_enforce_the_quota_together(tmp_path: Path) -> None:
    cluster = Cluster(data_dir=tmp_path / "data", env={"KAFSCALE_FRONTDOOR_WORKERS": "2"})
    try:
        cluster.start()
        rate = together(cluster, partitions=1, each=6)
        assert rate == pytest.approx(PRODUCED, rel=TENTH)
    finally:
        cluster.kill()


@pytest.mark.chaos
def test_three_front_doors_enforce_the_quota_of_a_cluster_together(tmp_path: Path) -> None:
    """The partitions have different leaders, so the producers use different front doors."""
    env = {"KAFSCALE_QUOTA_SCOPE": "cluster"}
    cluster = Cluster(data_dir=tmp_path / "data", scale={"frontdoor": 3}, env=env)
    try:
        cluster.start()
        assert together(cluster, partitions=6) == pytest.approx(PRODUCED, rel=TENTH)
    finally:
        cluster.kill()


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_a_minute_with_kafkas_window(tmp_path: Path) -> None:
    """`make quotas`. Each front door enforces the whole quota, as a broker of Kafka does."""
    cluster = Cluster(data_dir=tmp_path / "data", scale={"frontdoor": 3})
    try:
        cluster.start()
        topic = new_topic(cluster)
        filled(cluster.bootstrap, topic, 20 * CONSUMED // RECORD_BYTES)
        quotas(cluster, f"set producer_byte_rate={PRODUCED} consumer_byte_rate={CONSUMED} --client-defaults")
        with PacedProducer(cluster.bootstrap, topic, "paced-producer") as producer:
            assert producer.rate_over(60, 15) == pytest.approx(PRODUCED, rel=TENTH)
        with PacedConsumer(cluster.bootstrap, topic, "paced-consumer") as consumer:
            assert consumer.rate_over(66, 15) == pytest.approx(CONSUMED, rel=TENTH)
    finally:
        cluster.kill()
