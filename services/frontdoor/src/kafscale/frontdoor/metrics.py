"""What the front door counts: requests, errors, time and bytes by API, and its connections."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kafscale.access.quota import QuotaKey
from kafscale.frontdoor.apis import SERVED
from kafscale.runtime.metrics import Distribution, Metrics, Tally
from kafscale.wire.apis import api_label

NO_MECHANISM: Final = "none"
"""The label of a login that ended before the client named a mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStats:
    """The counters of one API, looked up once."""

    requests: Tally
    seconds: Distribution
    in_bytes: Tally
    out_bytes: Tally


class StatsByKey(dict[int, ApiStats]):
    """Those of every API that is served, and of any other that a client has asked for."""

    def __init__(self, of: Callable[[int], ApiStats]) -> None:
        super().__init__({key: of(key) for key in SERVED})
        self._of = of

    def __missing__(self, key: int) -> ApiStats:
        made = self[key] = self._of(key)
        return made


class FrontdoorMetrics:
    def __init__(self, metrics: Metrics) -> None:
        requests = metrics.counters("requests_total")
        seconds = metrics.histograms("request_seconds")
        in_bytes = metrics.counters("request_bytes_total")
        out_bytes = metrics.counters("response_bytes_total")

        def of(key: int) -> ApiStats:
            name = api_label(key)
            return ApiStats(
                requests=requests.labels(name),
                seconds=seconds.labels(name),
                in_bytes=in_bytes.labels(name),
                out_bytes=out_bytes.labels(name),
            )

        self.by_key = StatsByKey(of)
        self.errors = metrics.counters("errors_total")
        self.connections = metrics.gauge("connections")
        self.accepted = metrics.counter("connections_accepted_total")
        self.hung_up = metrics.counters("connections_closed_total")
        self.hung_up.begin("memory")  # an alert uses it
        self.authentications = metrics.counters("authentications_total")
        self.authentications.labels(NO_MECHANISM, "refused")  # at 0, for an alert
        self.pending_authentications = metrics.gauge("authentications_pending")
        self.expired_sessions = metrics.counter("sessions_expired_total")
        self.token_keys_read = metrics.gauge("token_keys_read_timestamp_seconds")
        self._throttle_seconds = metrics.histograms("throttle_seconds")
        self.dropped_answers = metrics.counter("answers_dropped_total")
        self.held_bytes = metrics.gauge("held_bytes")
        self.stalls = metrics.counter("read_stalls_total")

    def throttled(self, key: QuotaKey, throttle_ms: int) -> None:
        self._throttle_seconds.labels(key.value).observe(throttle_ms / 1_000)
