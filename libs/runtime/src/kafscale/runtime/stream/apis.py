"""What a service counts of each Kafka request: how many, how long, and which errors its answers hold."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from kafscale.runtime.metrics import Distribution, Metrics, Tally
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.wire.apis import api_label
from kafscale.wire.buffers import Buffer
from kafscale.wire.error_codes import error_codes
from kafscale.wire.error_names import error_name

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStats:
    """The counters of one API, looked up once."""

    requests: Tally
    seconds: Distribution


class ApiMetrics:
    """`by_key`: of the API keys that the service answers."""

    def __init__(self, metrics: Metrics, keys: Iterable[int]) -> None:
        requests = metrics.counters("requests_total")
        seconds = metrics.histograms("request_seconds")
        self._errors = metrics.counters("errors_total")
        self._names = {key: api_label(key) for key in keys}
        self.by_key = {
            key: ApiStats(requests=requests.labels(name), seconds=seconds.labels(name))
            for key, name in self._names.items()
        }

    def failed(self, key: int, code: int) -> None:
        self._errors.labels(self._names[key], error_name(code)).inc()


def answered(
    request: InboundRequest, answer: R, encode: Callable[[R, int], Sequence[Buffer]]
) -> Sequence[Buffer]:
    """The answer's bytes, in the version that was asked for, when the errors in it are counted.

    Handlers behind the front door end here. Produce, and Fetch once it has read, count the errors they know already
    and do without a walk through the answer.
    """
    for code in error_codes(answer):
        request.failed(code)
    return encode(answer, request.meta.api_version)
