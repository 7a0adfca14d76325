"""S3's lists and bulk deletions: the question as a query or as XML, and the answer's XML as values. Pure.

ListObjectsV2 lists keys. They come percent-encoded where the server knows how, as XML cannot hold every character.
DeleteObjects is many deletions in one request. Its answer names each key as deleted or with an error; of a key that it
does not name nothing is known. A key that XML cannot hold is for a request of its own.

The XML is a server's, so it may be anything: a document type, which alone could make it grow while it is parsed, is
refused before.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from kafscale.storage.objects.port import Doomed, ObjectInfo

Query = Sequence[tuple[str, str]]
DELETE_QUERY: Final = (("delete", ""),)
_ANY: Final = "{*}"
"""Some servers name S3's namespace, some none."""
_UNFIT: Final = re.compile("[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class BadAnswer(Exception):
    """The text says what is wrong with the answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """`next_token`: what to ask for the rest with; None after the last page."""

    objects: tuple[ObjectInfo, ...]
    next_token: str | None


def list_query(
    prefix: str, *, start_after: str = "", token: str | None = None, keys_max: int = 1000
) -> Query:
    """`token` goes on where a page ended."""
    query = [
        ("list-type", "2"),
        ("encoding-type", "url"),
        ("max-keys", str(keys_max)),
        ("prefix", prefix),
    ]
    if token is not None:
        query.append(("continuation-token", token))
    elif start_after:
        query.append(("start-after", start_after))
    return query


def parse_page(body: bytes) -> Page:
    """Raises BadAnswer."""
    what = "a list of objects"
    root = _root(body, "ListBucketResult", what)
    encoded = root.findtext(f"{_ANY}EncodingType") == "url"
    try:
        objects = tuple(
            ObjectInfo(
                key=unquote(_text(item, "Key")) if encoded else _text(item, "Key"),
                etag=_text(item, "ETag").strip('"'),
                size=int(_text(item, "Size")),
            )
            for item in root.iterfind(f"{_ANY}Contents")
        )
        cut_off = root.findtext(f"{_ANY}IsTruncated") == "true"
        return Page(objects, _text(root, "NextContinuationToken") if cut_off else None)
    except ValueError as error:
        raise BadAnswer(f"{what} cannot be read: {error}") from error


def fits(doomed: Doomed) -> bool:
    """Whether XML can hold the key as it is."""
    return _UNFIT.search(doomed.key) is None


def delete_body(doomed: Sequence[Doomed]) -> bytes:
    items = []
    for each in doomed:
        etag = "" if each.etag is None else f"<ETag>{escape(quoted(each.etag))}</ETag>"
        items.append(f"<Object><Key>{escape(each.key)}</Key>{etag}</Object>")
    root = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    return f'<?xml version="1.0" encoding="UTF-8"?>{root}{"".join(items)}</Delete>'.encode()


def delete_headers(body: bytes) -> dict[str, str]:
    """S3 takes no DeleteObjects without a checksum of its body."""
    digest = hashlib.md5(body, usedforsecurity=False).digest()
    return {"content-md5": base64.b64encode(digest).decode(), "content-type": "application/xml"}


def parse_deleted(body: bytes) -> Mapping[str, tuple[str, str] | None]:
    """By key None, or code and message of its error. Raises BadAnswer."""
    root = _root(body, "DeleteResult", "the answer to a deletion")
    found: dict[str, tuple[str, str] | None] = {
        item.findtext(f"{_ANY}Key", ""): None for item in root.iterfind(f"{_ANY}Deleted")
    }
    for item in root.iterfind(f"{_ANY}Error"):
        code, message = (item.findtext(f"{_ANY}{name}", "") for name in ("Code", "Message"))
        found[item.findtext(f"{_ANY}Key", "")] = code, message
    return found


def quoted(etag: str) -> str:
    return f'"{etag}"'


def _root(body: bytes, tag: str, what: str) -> ElementTree.Element:
    """The document's root, which is a `tag`. Raises BadAnswer."""
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise BadAnswer(f"{what} came with a document type")
        root = ElementTree.fromstring(text)  # noqa: S314  (no document type, so no entity)
        if root.tag.rpartition("}")[2] != tag:
            raise ValueError(f"it is a {root.tag}")
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError) as error:
        raise BadAnswer(f"{what} cannot be read: {error}") from error
    return root


def _text(element: ElementTree.Element, name: str) -> str:
    found = element.findtext(f"{_ANY}{name}")
    if found is None:
        raise ValueError(f"{element.tag.rpartition('}')[2]} without {name}")
    return found
