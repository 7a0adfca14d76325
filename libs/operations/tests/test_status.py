"""The picture of clusters in every state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.operations.services import SERVICES
from kafscale.operations.status.gather import count_groups, labelled, rates, totals
from kafscale.operations.status.picture import READY, Observed, http_address
from kafscale.storage.keys import Keyspace, SlotId

from .pictures import SILENT, WHOLE, instance, of


def test_a_full_disk_is_the_first_warning_and_the_cluster_does_not_serve() -> None:
    picture = of(replace(WHOLE, disk_full="the disk of data is full (0 of 260 MB free)"))
    assert not picture.serves
    assert picture.warnings[0].startswith("the disk of data is full (0 of 260 MB free): records are refused")


def test_a_whole_cluster_has_no_warning() -> None:
    picture = of(WHOLE)
    assert (picture.serves, picture.warnings, picture.rates_over_s) == (True, (), 1.0)
    assert [row.service for row in picture.instances] == [
        "frontdoor",
        "produce",
        "fetch",
        "coordinator",
        "admin",
        "upkeep",
    ]
    by_role = {row.service: row for row in picture.instances}
    assert by_role["frontdoor"].address == "kafka:9092", "what clients dial"
    assert by_role["produce"].address == "10.0.0.1:7000"
    assert {row.metrics for row in picture.instances} == {"10.0.0.1:8000"}, "an operator asks it for /metrics"
    assert {row.age_s for row in picture.instances} == {65}
    assert [by_role[role].owns for role in ("produce", "coordinator", "fetch")] == [6, 64, None]
    assert picture.partitions_owned == 6


@pytest.mark.parametrize("role", SERVICES)
def test_a_service_without_a_ready_instance_is_told_with_what_clients_notice(role: str) -> None:
    missing = replace(WHOLE, instances=tuple(each for each in WHOLE.instances if each.role != role))
    picture = of(missing)
    assert not picture.serves
    assert picture.warnings[0].startswith(f"no {role} is ready: ")
    assert picture.warnings[0].endswith(f"start one with `kafscale serve {role}`")
    deaf = of(WHOLE, **{role: SILENT})
    assert not deaf.serves
    assert deaf.warnings[0].startswith(f"no {role} is ready: ")
    assert any("is registered but does not answer" in each for each in deaf.warnings)


def test_clients_are_served_without_upkeep() -> None:
    picture = of(replace(WHOLE, instances=WHOLE.instances[:-1]))
    assert (picture.serves, len(picture.warnings)) == (True, 1)
    assert picture.warnings[0].startswith("no upkeep is ready: nothing expires")


def test_what_an_instance_says_of_itself_is_repeated() -> None:
    draining = Observed(health="draining", gauges={}, rates={})
    assert "fetch 1 at 10.0.0.1:7000 is not ready: draining" in of(WHOLE, fetch=draining).warnings


def test_an_etcd_that_went_back_is_the_first_warning_of_all_who_say_it() -> None:
    gauges = {f"kafscale_{role}_history_stopped": 1.0 for role in ("produce", "admin")}
    stopped = Observed(health=READY, gauges=gauges, rates={})
    (warning,) = of(WHOLE, produce=stopped, admin=stopped).warnings
    assert warning.startswith("etcd went back in its history, say admin, produce: no records are accepted")


def test_only_the_newest_boot_of_a_node_counts_and_what_the_old_one_owned_is_told() -> None:
    again = instance("produce", boot_id="c", revision=2)
    picture = of(replace(WHOLE, instances=(*WHOLE.instances, again)))
    (row,) = (row for row in picture.instances if row.service == "produce")
    assert row.owns == 0
    assert picture.warnings[0].startswith("6 partitions belong to a produce instance that has died")


def test_one_partition_belongs_and_two_belong() -> None:
    for count, said in ((1, "1 partition belongs to a"), (2, "2 partitions belong to a")):
        assert of(replace(WHOLE, partition_owners=("9/x",) * count)).warnings[0].startswith(said)


def test_samples_are_added_up_by_name() -> None:
    text = '# HELP a_total x y\n# TYPE a_total counter\na_total{t="x y"} 2.0\na_total{t="}"} 3.5\nb 1e3\n'
    assert totals(text) == {"a_total": 5.5, "b": 1000.0}


def test_rates_of_counters() -> None:
    before = {"a_total": 10.0, "fell_total": 9.0, "gauge": 1.0}
    after = {"a_total": 14.0, "fell_total": 1.0, "new_total": 6.0, "gauge": 5.0}
    assert rates(before, after, 2.0) == {"a_total": 2.0, "fell_total": 0.0, "new_total": 3.0}
    assert rates({}, after, 2.0) == {}, "of one that did not answer before nothing is known"


def test_who_listens_on_all_addresses_is_dialled_where_its_grpc_is() -> None:
    assert http_address(instance("fetch")) == "10.0.0.1:8000"
    assert http_address(replace(instance("fetch"), http_address="0.0.0.0:8000")) == "10.0.0.1:8000"
    assert http_address(replace(instance("fetch"), http_address="[::]:8000")) == "10.0.0.1:8000"


def test_groups_are_counted_without_the_keys_of_their_members() -> None:
    keys = Keyspace("n")
    groups = [keys.group(SlotId(3), name) for name in ("a", "b")]
    members = [keys.beneath_group(groups[0], kind, "m") for kind in ("m", "a", "t")]
    assert count_groups(keys, [*groups, *members, keys.groups_prefix() + b"03/a/stray"]) == 2


def test_samples_of_a_metric_are_summed_by_one_label() -> None:
    text = (
        "# HELP kafscale_fetch_bytes_total Bytes\n"
        'kafscale_fetch_bytes_total{topic="a"} 2.0\n'
        'kafscale_fetch_bytes_total{topic="b",worker="1"} 3.0\n'
        'kafscale_fetch_bytes_total{worker="2",topic="b"} 4.0\n'
        'kafscale_fetch_bytes_total_created{topic="a"} 9.0\n'
        "kafscale_fetch_connections 7.0\n"
    )
    assert labelled(text, "kafscale_fetch_bytes_total", "topic") == {"a": 2.0, "b": 7.0}
    assert labelled(text, "kafscale_fetch_connections", "topic") == {}
