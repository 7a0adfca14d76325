"""Answers that the front door gives itself, because no service did: the request's names with an error.

Laws: the front door writes a refusal only for requests of at most `REQUEST_BYTES_MAX`, since it has to read the
request while everything else waits; it closes the connection of a larger one, and the client asks again. It reserves
room for a large refusal, as for other large answers. Most APIs have one of three shapes of answers: an error for the
whole of it, one in each entry, or one in each partition.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafscale.frontdoor.api import Codec, Refuse
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.memory import SMALL_ANSWER_BYTES
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError

Struct = Callable[..., Any]
REQUEST_BYTES_MAX: Final = 1 << 20


def refuse_exchange(exchange: Exchange, code: ErrorCode, refuse: Refuse | None = None) -> None:
    """`refuse`: in place of the API's own."""
    exchange.error = int(code)
    size = len(exchange.request.body)
    if size > REQUEST_BYTES_MAX:
        exchange.hang_up(f"{exchange.api.name} of {size} bytes: {code.name}, and too large for a refusal")
        return
    try:
        body = (refuse or exchange.api.refuse)(exchange.request.body, exchange.version, code)
    except WireError as error:
        exchange.hang_up(str(error))
        return
    size = sum(map(len, body))
    if size > SMALL_ANSWER_BYTES and not exchange.admits(size):
        exchange.hang_up(f"no memory for a refusal of {size} bytes")
        return
    exchange.answer(body)


def failed(struct: Struct, code: ErrorCode, **fields: object) -> Any:
    """An answer, or an entry of one, that holds the error, and its text if there is a field for it."""
    if "error_message" in struct.__struct_fields__:  # type: ignore[attr-defined]
        fields["error_message"] = code.message
    return struct(error_code=int(code), **fields)


def key_in(entry: Any, field: str) -> str:
    """The group or the transactional id of an entry, which is the id itself or has it in the field."""
    return entry if isinstance(entry, str) else str(getattr(entry, field))


def failed_key(struct: Struct, field: str = "group_id") -> Callable[[Any, ErrorCode], Any]:
    """Makes an entry of an answer about several keys, with an error, from one of the request."""
    return lambda asked, code: failed(struct, code, **{field: key_in(asked, field)})


def whole(schema: Codec, response: Struct, **fields: object) -> Refuse:
    """An answer with one error for all of it. `fields`: what else it says."""

    def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        schema.decode_request(body, version)
        return schema.encode_response(failed(response, code, **fields), version)

    return refuse


def each(
    schema: Codec, response: Struct, lists: tuple[str, str], entry: Struct, *names: str, **fields: object
) -> Refuse:
    """An answer with an error in each entry. `lists`: their names in the request and in the answer; an answer's entry
    takes the fields `names` from the request's."""
    asked, results = lists

    def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        entries = [
            failed(entry, code, **{name: getattr(one, name) for name in names}, **fields)
            for one in getattr(schema.decode_request(body, version), asked)
        ]
        return schema.encode_response(response(**{results: entries}), version)

    return refuse


def each_partition(
    schema: Codec,
    response: Struct,
    topic: Struct,
    partition: Struct,
    *,
    names: Sequence[str],
    number: str,
    **fields: object,
) -> Refuse:
    """An answer with an error in each partition. `names`: what a topic takes from the request's topic; `number`: the
    field with the number of a partition, in both."""

    def refuse(body: memoryview, version: int, code: ErrorCode) -> Sequence[Buffer]:
        topics = [
            topic(
                partitions=[
                    failed(partition, code, **{number: getattr(part, number)}, **fields)
                    for part in one.partitions
                ],
                **{name: getattr(one, name) for name in names},
            )
            for one in schema.decode_request(body, version).topics
        ]
        return schema.encode_response(response(topics=topics), version)

    return refuse
