"""Profiles on disk: each is a file of Kafka's client settings, as `--command-config` takes it.

Law: only the owner can read a profile. A profile that others can read is refused. What is shown of a profile contains
no value of a setting that may be secret: only settings in SHOWN are shown.

$KAFSCALE_CONFIG_HOME, else $XDG_CONFIG_HOME/kafscale, else ~/.config/kafscale:
profiles/NAME.properties   one profile
current                    the name of the profile that is used by default
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafscale.client.properties import ENCODING, format_properties, read_settings
from kafscale.operations.sentences import Trouble

HOME: Final = "KAFSCALE_CONFIG_HOME"
SUFFIX: Final = ".properties"
PRIVATE_FOLDER: Final = 0o700
OTHERS: Final = 0o077
BOOTSTRAP: Final = "bootstrap.servers"
SHOWN: Final = (
    BOOTSTRAP,
    "security.protocol",
    "sasl.mechanism",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.endpoint.identification.algorithm",
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ProfileTrouble(Trouble):
    """The text is a sentence for the user, without a secret."""


class Profiles:
    def __init__(self, home: Path) -> None:
        self._folder = home / "profiles"
        self._current = home / "current"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self._folder.glob(f"*{SUFFIX}"))

    def current(self) -> str | None:
        """The name of the profile in use. The profile itself may be gone."""
        try:
            return self._current.read_text().strip() or None
        except FileNotFoundError:
            return None

    def path(self, name: str) -> Path:
        """The file of a profile. Raises ProfileTrouble if there is none, or if others can read it."""
        path = self._path(name)
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise ProfileTrouble(
                f"profile '{name}' does not exist; `kafscale profile list` shows what does"
            ) from None
        if mode & OTHERS:
            raise ProfileTrouble(
                f"other users can read {path}; run `chmod 600 {path}`, and change the passwords in it"
            )
        return path

    def settings(self, name: str) -> dict[str, str]:
        """Raises ProfileTrouble and PropertiesWrong."""
        return read_settings(self.path(name))

    def create(self, name: str, settings: Mapping[str, str]) -> None:
        """Replaces a profile of the name. A reader never sees half of the file. Raises ProfileTrouble."""
        path = self._path(name)
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        _write(path, format_properties(settings))

    def use(self, name: str) -> None:
        self.path(name)
        _write(self._current, f"{name}\n")

    def leave(self) -> None:
        """From now on no profile is in use."""
        self._current.unlink(missing_ok=True)

    def delete(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise ProfileTrouble(
                f"profile '{name}' does not exist; `kafscale profile list` shows what does"
            ) from None
        if self.current() == name:
            self.leave()

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ProfileTrouble(
                f"'{name}' cannot be the name of a profile: use 1 to 100 letters, digits, dots, dashes or underscores"
            )
        return self._folder / f"{name}{SUFFIX}"


def profiles() -> Profiles:
    """Those of this user."""
    named, base = os.environ.get(HOME), os.environ.get("XDG_CONFIG_HOME")
    return Profiles(Path(named) if named else (Path(base) if base else Path.home() / ".config") / "kafscale")


def _write(path: Path, text: str) -> None:
    """mkstemp gives a file that only the owner can read."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding=ENCODING, newline="") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
