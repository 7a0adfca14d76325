"""Where the keys of OAUTHBEARER are: an https URL, or a file. Pure."""

from pathlib import Path
from urllib.parse import unquote, urlsplit


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
