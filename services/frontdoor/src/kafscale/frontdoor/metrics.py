"""What the front door counts: requests, errors, time and bytes by API, and its connections."""

from dataclasses import dataclass
from typing import Final

from kafscale.frontdoor.routes import ROWS, Status
from kafscale.runtime.metrics import Distribution, Metrics, Tally

REFUSED_REASONS: Final = ("too_many", "not_kafka", "frame_too_large", "bad_request", "no_answer", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStats:
    """The counters of one API, looked up once."""

    requests: Tally
    seconds: Distribution
    in_bytes: Tally
    out_bytes: Tally


class FrontdoorMetrics:
    def __init__(self, metrics: Metrics) -> None:
        requests = metrics.counters("requests", "Requests answered, by API.", ("api",))
        seconds = metrics.histograms(
            "request_seconds", "From the last byte in to the answer, by API.", ("api",)
        )
        in_bytes = metrics.counters("request_bytes", "Bytes of requests, by API.", ("api",))
        out_bytes = metrics.counters("response_bytes", "Bytes of answers, by API.", ("api",))
        self.by_key: dict[int, ApiStats] = {
            int(row.key): ApiStats(
                requests=requests.labels(row.name),
                seconds=seconds.labels(row.name),
                in_bytes=in_bytes.labels(row.name),
                out_bytes=out_bytes.labels(row.name),
            )
            for row in ROWS
            if row.status is Status.SERVED
        }
        self.errors = metrics.counters(
            "errors", "Errors the front door gave, by API and code.", ("api", "code")
        )
        self.connections = metrics.gauge("connections", "Open client connections.")
        self.accepted = metrics.counter("connections_accepted", "Client connections accepted.")
        self.hung_up = metrics.counters(
            "connections_closed", "Connections closed by us, by reason.", ("reason",)
        )
        self.held_bytes = metrics.gauge("held_bytes", "Bytes of requests held for clients.")
        self.stalls = metrics.counter("read_stalls", "Times all sockets were left unread for want of memory.")
