"""Where a Kafka client connects, and how: by an address, a file of settings, a data directory or the profile in use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.client.security import OPEN, ClientSecurity, read_security
from kafscale.client.tokens import TokenTrouble
from kafscale.operations.profiles import ProfileTrouble, profiles
from kafscale.operations.target import DEFAULT_DATA_DIR

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class Place:
    bootstrap: str
    security: ClientSecurity


def place_of(
    given: str | None,
    data_dir: Path | None,
    command_config: Path | None,
    *,
    data_dir_first: bool,
    login_later: bool = False,
) -> Place:
    """The given address, or that of the file, or of the cluster that runs on the data directory. `data_dir_first`: the
    directory comes before an address of the environment or of the file.

    If none of the three is given, the profile in use is the file: its login is sent to no other address. Without one it
    is the cluster that runs on DEFAULT_DATA_DIR, else Kafka's default port here. A data directory that is named and on
    which no cluster runs is an error: a client must not reach another cluster instead. `login_later`: a file with SASL
    may leave out who logs in.

    Raises PropertiesWrong, TokenTrouble, ProfileTrouble, NotRunning and DataDirUnusable.
    """
    if given is None and data_dir is None and command_config is None:
        command_config = _profile_in_use()
    security = OPEN if command_config is None else read_security(command_config, login_later=login_later)
    try:
        security.check_token()
    except TokenTrouble as trouble:
        raise TokenTrouble(f"{command_config}: {trouble}") from trouble
    if (named := given or security.bootstrap) is not None and not data_dir_first:
        return Place(named, security)
    from kafscale.operations.datadir import DataDir  # of size, and most calls name an address

    if data_dir is not None:
        return Place(DataDir(data_dir).must_run().bootstrap_servers, security)
    running = DataDir(DEFAULT_DATA_DIR).running()
    return Place(DEFAULT_BOOTSTRAP if running is None else running.bootstrap_servers, security)


def _profile_in_use() -> Path | None:
    found = profiles()
    try:
        return None if (name := found.current()) is None else found.path(name)
    except ProfileTrouble as trouble:
        raise ProfileTrouble(f"{trouble} (it is in use; `kafscale profile leave` ends that)") from trouble
