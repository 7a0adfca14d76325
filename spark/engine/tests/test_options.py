"""Options mean what Spark's Kafka connector means by them, and what nobody knows is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafscale_spark.clusters import settings_of
from kafscale_spark.options import BadOption, Edge, Offsets, Times, parse


def test_names_have_no_case_and_defaults_are_the_connectors() -> None:
    request = parse(
        {"SUBSCRIBE": "a, b", "failondataloss": "False", "kafka.bootstrap.servers": "x", "minPartitions": "3"}
    )
    assert request.topics.names == frozenset({"a", "b"})
    assert not request.fail_on_data_loss
    assert request.starting is None
    assert request.ending is Edge.LATEST
    assert parse({}).topics.has("anything")


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Edge.EARLIEST),
        ({"startingOffsets": '{"a": {"0": 5, "1": -2}}'}, Offsets({("a", 0): 5, ("a", 1): -2})),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 5}}'}, Times(of={("a", 0): 5})),
        ({"startingTimestamp": "7", "startingOffsets": "latest"}, Times(everywhere=7)),
    ],
)
def test_where_to_start(options: dict[str, str], starting: object) -> None:
    assert parse(options).starting == starting


def test_the_isolation_level_has_the_names_of_kafkas_clients() -> None:
    assert parse({}).committed_only
    assert not parse({"isolation": "read_uncommitted"}).committed_only
    with pytest.raises(
        BadOption, match="option isolation cannot be 'dirty': it is read_committed or read_uncommitted"
    ):
        parse({"isolation": "dirty"})


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("90 s", 90_000), ("250ms", 250), ("1h", 3_600_000), ("7", 7)]
)
def test_times_have_units(text: str, ms: int) -> None:
    assert parse({"maxTriggerDelay": text}).delay_max_ms == ms


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"startingOfsets": "earliest"}, "no option startingofsets"),
        ({"subscribe": " , "}, "no topic is named"),
        ({"subscribePattern": "("}, "option subscribePattern cannot be"),
        ({"assign": "[1]"}, "option assign cannot be"),
        ({"startingOffsets": "soon"}, "option startingOffsets cannot be 'soon': it is earliest or latest"),
        ({"startingOffsets": '{"a": 5}'}, "option startingOffsets cannot be"),
        ({"startingTimestamp": "-1"}, "in ms since 1970"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss cannot be 'maybe': it is true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "at least 1"),
        ({"maxTriggerDelay": "long"}, "a time is a number"),
        ({"maxTriggerDelay": "5 weeks"}, "option maxTriggerDelay cannot be"),
    ],
)
def test_a_mistake_is_told_with_its_option(options: dict[str, str], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        parse(options)


def test_partitions_are_those_that_were_assigned() -> None:
    topics = parse({"assign": '{"a": [0, 2]}'}).topics
    assert [topics.has_place(("a", number)) for number in range(3)] == [True, False, True]
    assert not topics.has("b")


def test_a_pattern_is_for_the_whole_name() -> None:
    topics = parse({"subscribePattern": "a-.*"}).topics
    assert [topics.has(name) for name in ("a-1", "a-", "ba-1", "a")] == [True, True, False, False]


def test_settings_are_options_and_stronger_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_NAMESPACE", "there")
    monkeypatch.setenv("KAFSCALE_OBJECT_DIR", "/objects")
    found = settings_of(parse({"Kafscale.Etcd_Endpoints": "http://a:1,http://b:2"}))
    assert (found.etcd_endpoints, found.namespace) == (("http://a:1", "http://b:2"), "there")
    assert settings_of(parse({"kafscale.namespace": "here"})).namespace == "here"
    with pytest.raises(BadOption, match="no setting nonsense"):
        settings_of(parse({"kafscale.nonsense": "1"}))
    with pytest.raises(BadOption, match="valid integer"):
        settings_of(parse({"kafscale.node_id": "none"}))


def test_a_data_directory_says_where_its_cluster_is(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="no cluster runs on"):
        settings_of(parse({"dataDir": str(tmp_path)}))
    (tmp_path / "run").mkdir()
    said = {"etcd": "http://127.0.0.1:7", "namespace": "n", "object_dir": str(tmp_path / "objects")}
    (tmp_path / "run" / "endpoints.json").write_text(json.dumps(said))
    found = settings_of(parse({"dataDir": str(tmp_path)}))
    assert (found.etcd_endpoints, found.namespace) == (("http://127.0.0.1:7",), "n")
    assert (found.object_store_kind, found.object_dir) == ("dir", tmp_path / "objects")
