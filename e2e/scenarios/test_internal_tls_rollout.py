"""A running cluster gets certificates, instance by instance, in the order of docs/security-internal.md.

Law: no client notices (`harness/unnoticed.py`), and at the end no process without a certificate gets an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from kafscale.cli.internal_tls import environment
from kafscale.runtime.grpc_identity import plain
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.testkit.authority import Authority
from kafscale.testkit.seaweed import require_weed

from e2e.harness.deployment import ROLES
from e2e.harness.fleet import NODES, Fleet
from e2e.harness.forged import forged
from e2e.harness.unnoticed import SETTINGS, nobody_notices

PARTITIONS = 6
SERVICES = tuple(role for role in ROLES if role != "frontdoor")

pytestmark = [pytest.mark.timeout(600), pytest.mark.chaos]  # two minutes; `make upgrade-test`


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    require_weed()
    fleet = Fleet(tmp_path, PARTITIONS, SETTINGS)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


def replace(fleet: Fleet, roles: Sequence[str], authority: Authority, **more: str) -> Iterator[None]:
    """Restarts the instances of these roles with certificates, one in each step."""
    for role in roles:
        files: Mapping[str, str] = environment(authority.role(role))
        fleet.env = {**SETTINGS, **files, **more}
        for node in NODES:
            fleet.restart(role, node)
            yield


def test_certificates_reach_a_running_cluster_and_no_client_notices(fleet: Fleet, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    with nobody_notices(fleet, tmp_path) as go_on:
        for _ in replace(fleet, ("frontdoor",), authority, KAFSCALE_FRONTDOOR_PLAINTEXT_SERVICES="1"):
            go_on()
        for _ in replace(fleet, SERVICES, authority):
            go_on()
        for _ in replace(fleet, ("frontdoor",), authority):
            go_on()
    for role in SERVICES:
        for instance in fleet.inside().instances(role):
            assert instance.tls
            assert forged(instance.address, plain).status is ReplyStatus.REFUSED
