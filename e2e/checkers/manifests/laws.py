"""All laws, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from e2e.checkers.manifests import cluster, environment, network, outside, pods, scaling
from e2e.checkers.manifests.objects import Objects

Law = Callable[[Objects], list[str]]

_ALL: Final[tuple[Law, ...]] = (
    pods.probes_mean_different_things,
    pods.needs_are_said_and_bounded,
    pods.memory_holds_what_the_settings_allow,
    pods.pods_may_do_little,
    pods.nobody_speaks_to_kubernetes,
    pods.no_variables_of_services,
    pods.leaving_takes_less_than_the_grace,
    pods.only_front_doors_wait_before_they_drain,
    pods.pods_are_spread,
    pods.what_is_written_is_bounded,
    pods.images_are_named,
    environment.variables_are_settings,
    environment.settings_are_taken,
    environment.variables_stand_above_their_use,
    environment.no_secret_is_plain,
    environment.what_is_referred_to_is_there,
    environment.files_that_settings_name_are_mounted,
    environment.listens_where_its_ports_are,
    environment.who_decides_is_asked_by_front_doors_alone,
    scaling.one_decides_how_many,
    scaling.autoscalers_are_within_reason,
    scaling.nodes_can_be_emptied_one_pod_at_a_time,
    scaling.every_front_door_has_its_address,
    scaling.a_rollout_takes_none_away_before_its_successor,
    network.services_reach_ports,
    network.pods_have_names,
    network.selectors_mean_their_own,
    network.scrapes_are_named_as_alerts_know_them,
    network.annotations_lead_to_metrics,
    network.only_who_must_is_let_through,
    outside.only_clients_that_log_in_come_from_the_internet,
    outside.names_outside_are_the_advertised_ones,
    cluster.priorities_are_given,
    cluster.the_quota_admits_every_pod,
    cluster.containers_are_in_the_range,
    cluster.etcd_and_its_clients_speak_the_same,
)
LAWS: Final[Mapping[str, Law]] = {law.__name__: law for law in _ALL}
