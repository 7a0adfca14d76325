"""ListObjectsV2: the question as a query, and the answer's XML as values. Pure.

The XML is a server's, so it may be anything: a document type, which alone could make it grow while it is parsed, is
refused before. Keys come percent-encoded where the server knows how, as XML cannot hold every character.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote
from xml.etree import ElementTree

from kafscale.storage.objects.port import ObjectInfo

Query = Sequence[tuple[str, str]]
_ANY: Final = "{*}"
"""Some servers name S3's namespace, some none."""


class NotAListing(Exception):
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
    """Raises NotAListing."""
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise NotAListing("a list of objects came with a document type")
        return _page(ElementTree.fromstring(text))  # noqa: S314  (no document type, so no entity)
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError) as error:
        raise NotAListing(f"a list of objects cannot be read: {error}") from error


def _page(root: ElementTree.Element) -> Page:
    if root.tag.rpartition("}")[2] != "ListBucketResult":
        raise ValueError(f"it is a {root.tag}")
    encoded = root.findtext(f"{_ANY}EncodingType") == "url"
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


def _text(element: ElementTree.Element, name: str) -> str:
    found = element.findtext(f"{_ANY}{name}")
    if found is None:
        raise ValueError(f"{element.tag.rpartition('}')[2]} without {name}")
    return found
