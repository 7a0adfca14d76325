"""The size of a request's path through the code.

Law: a Produce crosses at most PRODUCE_MODULES_MAX modules of the product, counted between the socket and the reply, in
the front door and in the produce service together. The bound may only fall. To raise it, write an ADR that says what
the new modules decide, and which ones were removed for them. `tools/house.py` prints the other sizes.
`pytest --log-cli-level info` shows the names of the modules. Ten of them are there for bundles (ADR 14), and one for
the simulator (ADR 20). Runs differ by a module or two: some calls depend on which reply comes first. The bound leaves
room for that.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e.harness import crossing
from e2e.harness.deployment import Deployment
from e2e.harness.raw import Raw
from e2e.harness.requests import batch, create, send
from e2e.harness.services import Service, until

log = logging.getLogger(__name__)

PRODUCE_MODULES_MAX = 69
TOPIC = "crossed"
WARM_UP, MEASURED = 10, 12
TRACED = ("frontdoor", "produce")
REPORT_TIMEOUT_S = 30.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """All services on an etcd and an S3; the front door and the produce service record what they call."""
    deployment = Deployment(tmp_path_factory.mktemp("house"), 1)
    try:
        deployment.start_etcd()
        deployment.start_s3()
        deployment.start_services(
            {
                crossing.FOLDER: str(deployment.folder),
                "PYTHONPATH": str(Path(__file__).parents[2]),
            },
            dict.fromkeys(TRACED, crossing.__name__),
        )
        deployment.wait_ready()
        yield deployment
    finally:
        deployment.kill()


class Reports:
    """Asks the traced services for their reports, and waits for each."""

    def __init__(self, folder: Path, services: Sequence[Service]) -> None:
        self._folder = folder
        self._services = services
        self._taken = 0

    def take(self) -> dict[str, set[str]]:
        """Role to the modules called since the last `take`."""
        self._taken += 1
        for service in self._services:
            service.process.send_signal(signal.SIGUSR1)
        return {service.role: self._read(service.role) for service in self._services}

    def _read(self, role: str) -> set[str]:
        path = self._folder / f"kafscale.{role}-{self._taken}.json"
        until(f"{role} writes its report", path.exists, REPORT_TIMEOUT_S)
        return set(json.loads(path.read_text()))


def test_a_produce_crosses_few_modules(system: Deployment) -> None:
    """In steady state. What timers call by chance during one Produce is not in the reports of all."""
    reports = Reports(system.folder, [system.services[role] for role in TRACED])
    seen = []
    with Raw.to(system.bootstrap) as raw:
        assert create(raw, TOPIC) == 0
        for _ in range(WARM_UP):
            assert send(raw, batch(), topic=TOPIC) == 0
        for _ in range(MEASURED):
            reports.take()
            assert send(raw, batch(), topic=TOPIC) == 0
            seen.append(reports.take())
    crossed = {role: set.intersection(*(each[role] for each in seen)) for role in TRACED}
    names = set.union(*crossed.values())
    for role in TRACED:
        log.info("%s: %d modules\n  %s", role, len(crossed[role]), "\n  ".join(sorted(crossed[role])))
    log.info(
        "one Produce crosses %d modules: %d in the front door, %d in produce, some in both",
        len(names),
        *map(len, crossed.values()),
    )
    assert {"kafscale.frontdoor.client", "kafscale.produce.partition"} <= names
    crosses = len(names)
    assert crosses <= PRODUCE_MODULES_MAX
