"""All laws, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from e2e.checkers.manifests import console, environment, network
from e2e.checkers.manifests.objects import Objects

Law = Callable[[Objects], list[str]]

_ALL: Final[tuple[Law, ...]] = (
    environment.variables_are_settings,
    environment.settings_are_taken,
    environment.variables_stand_above_their_use,
    environment.no_secret_is_plain,
    environment.what_is_referred_to_is_there,
    environment.files_that_settings_name_are_mounted,
    environment.listens_where_its_ports_are,
    environment.who_decides_is_asked_by_front_doors_alone,
    environment.memory_holds_what_the_settings_allow,
    environment.leaving_takes_less_than_the_grace,
    environment.front_doors_change_after_old_addresses_are_forgotten,
    environment.members_of_etcd_change_after_old_addresses_are_forgotten,
    console.the_console_starts,
    console.the_console_is_one_process_at_its_ports,
    network.only_who_must_is_let_through,
    network.only_clients_that_log_in_come_from_the_internet,
)
LAWS: Final[Mapping[str, Law]] = {law.__name__: law for law in _ALL}


def broken(objects: Objects) -> list[str]:
    """A sentence for each fault, of all laws."""
    return [f"{name}: {fault}" for name, law in LAWS.items() for fault in law(objects)]
