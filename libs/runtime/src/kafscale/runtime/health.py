"""Whether this process is ready. gRPC health, /readyz and the log use this one value."""

import enum

from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]
from grpc_health.v1.health import aio as grpc_health  # type: ignore[import-untyped]


class Phase(enum.Enum):
    """A process is ready only in READY. It never returns to an earlier phase."""

    WAITING = "waiting"  # for etcd or the store
    STARTING = "starting"  # registered, loading
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


_ORDER = tuple(Phase)


class Health:
    def __init__(self, role: str) -> None:
        self._role = role
        self.phase = Phase.WAITING
        self.reason = "starting"
        self.servicer = grpc_health.HealthServicer()

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.READY

    def say(self, reason: str) -> None:
        """Sets the text of /readyz until the next phase."""
        self.reason = reason

    async def enter(self, phase: Phase, reason: str = "") -> None:
        assert _ORDER.index(phase) >= _ORDER.index(self.phase), f"{self.phase} is not followed by {phase}"
        self.phase = phase
        self.reason = reason or phase.value
        status = health_pb2.HealthCheckResponse.ServingStatus
        for service in ("", f"kafscale.{self._role}"):
            await self.servicer.set(service, status.SERVING if self.is_ready else status.NOT_SERVING)
