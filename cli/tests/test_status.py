"""What `kafscale status` says of clusters in every state."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace

import pytest
from kafscale.cli.options import ROLES, SERVICES
from kafscale.cli.status.draw import doing
from kafscale.cli.status.gather import count_groups, rates, totals
from kafscale.cli.status.picture import NO_ANSWER, READY, Kept, Observed, Picture, http_address, paint
from kafscale.cli.targets import finished
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.membership.records import Instance, InstanceState, Listener

NOW_MS = 1_000_000


def instance(role: str, node_id: int = 1, boot_id: str = "b", revision: int = 1) -> Instance:
    return Instance(
        role=role,
        node_id=node_id,
        boot_id=boot_id,
        address=f"10.0.0.{node_id}:7000",
        http_address=f"10.0.0.{node_id}:8000",
        state=InstanceState.READY,
        started_ms=NOW_MS - 65_000,
        create_revision=revision,
        listeners=(Listener(name="PLAINTEXT", host="kafka", port=9092),) if role == "frontdoor" else (),
    )


WHOLE = Kept(
    namespace="default",
    cluster_id="id",
    etcd=("http://e:2379",),
    instances=tuple(instance(role) for role in ROLES),
    topics=2,
    partitions=9,
    groups=1,
    partition_owners=("1/b",) * 6,
    slot_owners=("1/b",) * 64,
    now_ms=NOW_MS,
)
SILENT = Observed(health=NO_ANSWER, gauges={}, rates={})


def of(kept: Kept, **observed: Observed) -> Picture:
    ready = Observed(health=READY, gauges={"process": 1.0}, rates={"process_total": 0.0})
    everyone = {each.role + each.id: observed.get(each.role, ready) for each in kept.instances}
    return paint(kept, everyone, 1.04)


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


def test_what_an_instance_does() -> None:
    def told(role: str, gauges: dict[str, float], per_s: dict[str, float]) -> str:
        prefix = f"kafscale_{role}_"
        picture = of(
            WHOLE,
            **{
                role: Observed(
                    health=READY,
                    gauges={prefix + name: value for name, value in gauges.items()},
                    rates={prefix + name: value for name, value in per_s.items()},
                )
            },
        )
        return next(doing(row) for row in picture.instances if row.service == role)

    assert told("produce", {}, {"bytes_total": 1_234_567.0, "records_total": 10.0}) == (
        "6 partitions, 10.0 records/s, 1.2MB/s"
    )
    assert told("fetch", {}, {"requests_total": 1.0}) == "0.0 records/s, 0B/s"
    assert told("coordinator", {"groups": 1}, {"stream_requests_total": 2.0}) == (
        "64 slots, 1 group, 2.0 requests/s"
    )
    assert told("frontdoor", {"connections": 1_200}, {"requests_total": 0.25}) == (
        "1,200 connections, 0.2 requests/s"
    )
    assert told("upkeep", {"working": 0}, {}) == "standby"
    assert told("admin", {}, {}) == ""


def test_who_listens_on_all_addresses_is_dialled_where_its_grpc_is() -> None:
    assert http_address(instance("fetch")) == "10.0.0.1:8000"
    assert http_address(replace(instance("fetch"), http_address="0.0.0.0:8000")) == "10.0.0.1:8000"
    assert http_address(replace(instance("fetch"), http_address="[::]:8000")) == "10.0.0.1:8000"


def test_groups_are_counted_without_the_keys_of_their_members() -> None:
    keys = Keyspace("n")
    groups = [keys.group(SlotId(3), name) for name in ("a", "b")]
    members = [keys.beneath_group(groups[0], kind, "m") for kind in ("m", "a", "t")]
    assert count_groups(keys, [*groups, *members, keys.groups_prefix() + b"03/a/stray"]) == 2


def test_ctrl_c_while_libraries_are_imported_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status --watch` warned on the terminal that its coroutine was never awaited."""

    class Interrupted:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    async def watch() -> None:
        return

    monkeypatch.setitem(sys.modules, "kafscale.cli.clusters", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        finished(watch())
    gc.collect()
