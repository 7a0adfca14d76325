"""DeleteObjects: many deletions as one request's XML, and what the answer says of each. Pure.

The answer names each key as deleted or with an error; of a key that it does not name nothing is known. A key that XML
cannot hold is for a request of its own.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from kafscale.storage.objects.port import Doomed

QUERY: Final = (("delete", ""),)
_NAME: Final = "{*}"
_UNFIT: Final = re.compile("[^\t\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class NotAnAnswer(Exception):
    """The text says what is wrong with the answer."""


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
    """By key None, or code and message of its error. Raises NotAnAnswer."""
    try:
        text = body.decode()
        if "<!DOCTYPE" in text:
            raise NotAnAnswer("the answer to a deletion came with a document type")
        root = ElementTree.fromstring(text)  # noqa: S314  (no document type, so no entity)
        if root.tag.rpartition("}")[2] != "DeleteResult":
            raise ValueError(f"it is a {root.tag}")
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError) as error:
        raise NotAnAnswer(f"the answer to a deletion cannot be read: {error}") from error
    found: dict[str, tuple[str, str] | None] = {
        item.findtext(f"{_NAME}Key", ""): None for item in root.iterfind(f"{_NAME}Deleted")
    }
    for item in root.iterfind(f"{_NAME}Error"):
        code, message = (item.findtext(f"{_NAME}{name}", "") for name in ("Code", "Message"))
        found[item.findtext(f"{_NAME}Key", "")] = code, message
    return found


def quoted(etag: str) -> str:
    return f'"{etag}"'
