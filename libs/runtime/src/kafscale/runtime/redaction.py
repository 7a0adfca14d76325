"""Keeps secrets and control codes out of printed text: log fields, exceptions, messages about settings. Pure.

Law of secrets: `***` replaces the value of a field whose name contains a word such as `password`, the user part of a
URL, and the text after `password=` and similar words. In doubt it hides: a line may lose a harmless word, but never
shows a key. Law of control codes: only line ends and tabs are left. Clients choose names and ids, and a terminal would
execute the control codes in them. The law of control codes is for every line. The law of secrets is not for the audit
log, which gets no secret: it says who did what, and `system:serviceaccount:secret-manager:job` is a name.
"""

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "***"
DEPTH_MAX: Final = 4
"""Deeper values are printed as text."""

_WORDS: Final = (
    "password|passwd|secret|token|signature|credential|access_?key|private_?key|authorization|api_?secret"
)
_SECRET_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
_USER_IN_URL: Final = re.compile(r"://[^\s/?#]*@")
_AUTHORIZATION: Final = re.compile(
    r"(authorization[\"']?\s*[=:]\s*[\"']?)(?:(?:bearer|basic|aws4-hmac-sha256)\s+)?[^\s\"',]+", re.IGNORECASE
)
_ASSIGNED: Final = re.compile(
    rf"(\b[\w-]*(?:{_WORDS})[\w-]*[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s\"',;&}}\])]+)", re.IGNORECASE
)


def harmless(text: str) -> str:
    """The text with a replacement character for each control code."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def redact_text(text: str) -> str:
    text = harmless(text)
    if "@" in text:
        text = _USER_IN_URL.sub(f"://{HIDDEN}@", text)
    if "=" in text or ":" in text:
        text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
        text = _ASSIGNED.sub(rf"\1{HIDDEN}", text)
    return text


def printable(value: object) -> object:
    """The value without control codes. A value that is neither a number nor a text becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return harmless(str(value))


def redact(value: object, depth: int = 0) -> object:
    """The value without secrets. A value that is neither a number, a text nor a container becomes text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact_text(value)
    if depth < DEPTH_MAX:
        if isinstance(value, Mapping):
            return {str(name): redact_field(str(name), each, depth + 1) for name, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [redact(each, depth + 1) for each in value]
    return redact_text(str(value))


def redact_field(name: str, value: object, depth: int = 0) -> object:
    secret = _SECRET_NAME.search(name) is not None and value is not None and not isinstance(value, bool)
    return HIDDEN if secret else redact(value, depth)
