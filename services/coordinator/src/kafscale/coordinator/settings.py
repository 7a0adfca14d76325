"""Settings of the coordinator service: only what every service has."""

from __future__ import annotations

from kafscale.runtime.settings import ServiceSettings


class CoordinatorSettings(ServiceSettings):
    pass
