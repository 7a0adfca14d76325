"""The settings of SASL whose values are texts with a form of their own. Pure.

`sasl.enabled.mechanisms` says which mechanisms each listener offers. Mechanisms separated by commas are those of all
listeners. `NAME=A;B` between the commas are those of one listener, which then has no others. The keys of OAUTHBEARER
are at an https URL or in a file.
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kafscale.frontdoor.authentication.mechanisms import MECHANISMS

SETTING: Final = "KAFSCALE_SASL_ENABLED_MECHANISMS"


class MechanismsWrong(ValueError):
    """The setting cannot be used; the sentence says why."""


def all_mechanisms(text: str) -> frozenset[str]:
    """The mechanisms that any listener offers. Raises MechanismsWrong."""
    common, by_listener = _parse(text)
    return frozenset(common).union(*by_listener.values())


def mechanisms_of(text: str, listener: str) -> tuple[str, ...]:
    """The mechanisms of a listener in the order of the setting, each once. Raises MechanismsWrong."""
    common, by_listener = _parse(text)
    found = by_listener.get(listener.upper(), common)
    if not found:
        raise MechanismsWrong(f"{SETTING} names no mechanism for listener {listener}")
    return tuple(dict.fromkeys(found))


def _parse(text: str) -> tuple[list[str], dict[str, list[str]]]:
    common: list[str] = []
    by_listener: dict[str, list[str]] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        listener, equals, names = part.rpartition("=")
        listener = listener.strip().upper()
        if equals and (not listener or listener in by_listener):
            raise MechanismsWrong(f"{SETTING}: {part!r} is not NAME=MECHANISM;MECHANISM with a new NAME")
        found = [name.strip().upper() for name in names.split(";")]
        unknown = next((name for name in found if name not in MECHANISMS), None)
        if unknown is not None:
            raise MechanismsWrong(f"{SETTING}: {unknown!r} is not one of {', '.join(MECHANISMS)}")
        by_listener.setdefault(listener, []).extend(found)
    return by_listener.pop("", common), by_listener


class UrlWrong(ValueError):
    """The setting is neither an https URL nor one of a file."""


def parse_keys_url(url: str) -> Path | str:
    """A file's path, or the URL itself. Raises UrlWrong."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path:
        return Path(unquote(parts.path))
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise UrlWrong("an https:// or file:/// URL without a user is needed")
    return url
