"""The Kafka APIs of a service: which of its modules answers each, what is counted of each request (how many, how long,
which errors), and the request's codec."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Protocol, TypeVar

import msgspec
from kafscale.runtime.metrics import Distribution, Metrics, Tally
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.tasks import AsyncHandler
from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import error_codes, error_name

C = TypeVar("C")
Q = TypeVar("Q")
R = TypeVar("R", bound=msgspec.Struct)
Read = TypeVar("Read", covariant=True)
Written = TypeVar("Written", contravariant=True)


class Codec(Protocol[Read, Written]):
    """A module of `kafscale.wire.schema`, as a service uses it."""

    def decode_request(self, buf: Buffer, version: int) -> Read: ...

    def encode_response(self, msg: Written, version: int) -> Sequence[Buffer]: ...


@dataclass(slots=True)
class StreamStats:
    """What happened on a service's streams of one kind, as plain integers: counting costs nothing on the hot path."""

    requests: int = 0
    replies: int = 0
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cancelled: int = 0
    expired: int = 0
    refused: int = 0
    failed: int = 0
    too_large: int = 0
    pauses: int = 0


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


def answering_with_meta(
    codec: Codec[Q, R],
) -> Callable[[Callable[[C, Q, RequestMeta], Awaitable[R]]], Callable[[C], AsyncHandler]]:
    """Decorates a coroutine function from the service's context, a request and its meta to the answer."""

    def decorated(answer: Callable[[C, Q, RequestMeta], Awaitable[R]]) -> Callable[[C], AsyncHandler]:
        async def handle(context: C, inbound: InboundRequest) -> Sequence[Buffer]:
            request = codec.decode_request(inbound.body, inbound.meta.api_version)
            return answered(inbound, await answer(context, request, inbound.meta), codec.encode_response)

        return lambda context: partial(handle, context)

    return decorated


def answering(
    codec: Codec[Q, R],
) -> Callable[[Callable[[C, Q], Awaitable[R]]], Callable[[C], AsyncHandler]]:
    """The same for a handler that needs the request only."""
    return lambda answer: answering_with_meta(codec)(lambda context, request, _: answer(context, request))


T = TypeVar("T")


def exported(package: ModuleType, name: str, kind: type[T]) -> dict[int, T]:
    """What each module of the package exports under `name`, by API key, in the order of the keys.

    The name of a module is the name of its API: `list_offsets.py` answers ApiKey.LIST_OFFSETS. So the file registers
    its API, and no table repeats it.
    Modules without that name are helpers of the others. Raises KeyError for a module that is named after no API.
    """
    found: dict[int, T] = {}
    for each in iter_modules(package.__path__):
        value = getattr(import_module(f"{package.__name__}.{each.name}"), name, None)
        if value is None:
            continue
        assert isinstance(value, kind), f"{each.name}.{name} is no {kind.__name__}"
        found[int(ApiKey[each.name.upper()])] = value
    return dict(sorted(found.items()))
