"""A rolling restart: each instance of each service gets SIGTERM and restarts, one after another, as in an upgrade.

Law: with two instances of each service, no client notices (`harness/unnoticed.py`): no producer sees an error, each
acknowledged record exists once and in order, groups of both protocols read everything and never go back, and admin
calls keep working.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafscale.testkit.seaweed import require_weed

from e2e.harness.deployment import ROLES
from e2e.harness.fleet import NODES, Fleet
from e2e.harness.unnoticed import SETTINGS, nobody_notices

PARTITIONS = 6

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    require_weed()
    fleet = Fleet(tmp_path, PARTITIONS, SETTINGS)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


def test_each_instance_is_restarted_in_turn_and_no_client_notices(fleet: Fleet, tmp_path: Path) -> None:
    with nobody_notices(fleet, tmp_path) as go_on:
        for role in ROLES:
            for node in NODES:
                fleet.restart(role, node)
                go_on()
