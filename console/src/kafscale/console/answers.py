"""What handlers return and raise, and the lists that they cut into pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from kafscale.client.admin_client import KafkaTrouble, NoTopic, OutcomeUnknown
from kafscale.wire.errors import ErrorCode

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 500

Row = dict[str, Any]


class Problem(Exception):
    """An answer that is an error: `{error, sentence}`. The sentence says what to do."""

    def __init__(self, status: HTTPStatus, error: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.error, self.sentence = status, error, sentence


def bad_request(sentence: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "bad_request", sentence)


def forbidden(sentence: str) -> Problem:
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", sentence)


def not_found(sentence: str) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "not_found", sentence)


def outcome_unknown(sentence: str) -> Problem:
    """Of a change that may have taken effect."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "outcome_unknown", sentence)


@dataclass(frozen=True, slots=True)
class Lines:
    """An answer that goes on: each item is a JSON object on a line of its own, sent when it is there. The reader leaves
    by closing the connection, which cancels the iterator. `waits`: it mostly waits, and has a bound of its own, so it
    is not counted among the requests in progress."""

    items: AsyncIterator[Row]
    waits: bool = False


_STATUS: Final[Mapping[int, tuple[HTTPStatus, str]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (HTTPStatus.FORBIDDEN, "forbidden"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (HTTPStatus.FORBIDDEN, "forbidden"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (HTTPStatus.FORBIDDEN, "forbidden"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (HTTPStatus.FORBIDDEN, "forbidden"),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (HTTPStatus.UNAUTHORIZED, "no_login"),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (HTTPStatus.NOT_FOUND, "not_found"),
    ErrorCode.BROKER_ID_NOT_REGISTERED: (HTTPStatus.NOT_FOUND, "not_found"),
    ErrorCode.GROUP_ID_NOT_FOUND: (HTTPStatus.NOT_FOUND, "not_found"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (HTTPStatus.NOT_FOUND, "not_found"),
    ErrorCode.RESOURCE_NOT_FOUND: (HTTPStatus.NOT_FOUND, "not_found"),
    ErrorCode.TOPIC_ALREADY_EXISTS: (HTTPStatus.CONFLICT, "conflict"),
    ErrorCode.NON_EMPTY_GROUP: (HTTPStatus.CONFLICT, "conflict"),
    ErrorCode.UNKNOWN_MEMBER_ID: (HTTPStatus.CONFLICT, "conflict"),
    ErrorCode.INVALID_TXN_STATE: (HTTPStatus.CONFLICT, "conflict"),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (HTTPStatus.CONFLICT, "conflict"),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (HTTPStatus.TOO_MANY_REQUESTS, "throttled"),
}


def problem_of(trouble: KafkaTrouble) -> Problem:
    """The front door's answer, or the client's own refusal, as one of the console. No answer at all is 503, another
    refusal 400. A change that may have taken effect is also 503: nothing says that it was refused."""
    if isinstance(trouble, OutcomeUnknown):
        return outcome_unknown(str(trouble))
    if isinstance(trouble, NoTopic):
        return not_found(str(trouble))
    if trouble.code is None or trouble.passes:
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", str(trouble))
    status, error = _STATUS.get(trouble.code, (HTTPStatus.BAD_REQUEST, "refused"))
    return Problem(status, error, str(trouble))


def page_of(
    rows: Sequence[Row],
    query: Mapping[str, str],
    *,
    columns: Sequence[str],
    search: str,
    hidden: Callable[[Row], bool] = lambda _: False,
) -> Row:
    """`{items, total, page, pages}` of the rows that the query asks for.

    `q` is a part of the column `search`; `sort` is one of `columns`, with - for descending; `page` counts from 1;
    `rows` is how many (PAGE_ROWS). Rows that are `hidden` are shown only with `hidden=1` or if `q` finds them.
    Unknown values (None) come last in both directions. Raises Problem.
    """
    wanted = query.get("q", "").lower()
    shown = [row for row in rows if wanted in str(row[search]).lower()]
    if not wanted and query.get("hidden") != "1":
        shown = [row for row in shown if not hidden(row)]
    sort = query.get("sort", search)
    column = sort.removeprefix("-")
    if column not in columns:
        raise bad_request(f"sort is one of {', '.join(columns)}, with - before it for descending")
    known = [row for row in shown if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=sort.startswith("-"))
    ordered = known + [row for row in shown if row[column] is None]
    size = whole(query, "rows", PAGE_ROWS, 1, PAGE_ROWS_MAX)
    pages = max(-(-len(ordered) // size), 1)
    page = min(whole(query, "page", 1, 1, None), pages)
    return {
        "items": ordered[(page - 1) * size : page * size],
        "total": len(ordered),
        "page": page,
        "pages": pages,
        "hidden": len(rows) - len(shown) if not wanted else 0,
    }


def whole(query: Mapping[str, str], name: str, default: int, least: int, most: int | None) -> int:
    """A whole number of the query. Raises Problem."""
    text = query.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise bad_request(f"{name} is a whole number from {least}")
    if most is not None and int(text) > most:
        raise bad_request(f"{name} is {most} at most")
    return int(text)


def one_of(query: Mapping[str, str], name: str, known: Sequence[str]) -> str:
    """The first is the default. Raises Problem."""
    found = query.get(name) or known[0]
    if found not in known:
        raise bad_request(f"{name} is one of {', '.join(known)}")
    return found
