"""`python -m kafscale.console`: the console with the settings of the environment, until SIGTERM."""

from __future__ import annotations

import asyncio
import sys

from kafscale.client.properties import PropertiesWrong
from kafscale.client.security import ClientSecurity, Pem, read_security
from kafscale.console.logins import Entrance
from kafscale.console.server import serve
from kafscale.console.settings import ConsoleSettings, mistake
from kafscale.console.variables import ConsoleVariables
from kafscale.operations.sentences import Trouble
from kafscale.operations.target import Target
from kafscale.runtime.settings_load import load_settings

FAILED, USAGE = 1, 2


def main() -> int:
    try:
        entrance, settings = composed(load_settings(ConsoleVariables))
    except PropertiesWrong as wrong:
        return _ended(str(wrong), USAGE)
    if (problem := mistake(settings, entrance.mode)) is not None:
        return _ended(problem, USAGE)
    try:
        asyncio.run(serve(entrance, settings, lambda url: _say(f"Console: {url}")))
    except Trouble as trouble:
        return _ended(str(trouble), FAILED)
    return 0


def composed(given: ConsoleVariables) -> tuple[Entrance, ConsoleSettings]:
    """Raises PropertiesWrong."""
    security = ClientSecurity(
        protocol=given.security_protocol, trust=None if given.ca is None else Pem(path=given.ca)
    )
    if given.command_config is not None:
        security = read_security(given.command_config, login_later=True)
    settings = ConsoleSettings(
        port=given.port,
        listen=given.listen,
        read_only=given.read_only,
        everyone_acts_as_profile=given.everyone_acts_as_profile,
        certificate=given.tls_certificate,
        key=given.tls_key,
        behind_proxy=given.behind_proxy,
        target=Target(None, None) if given.direct else None,
        schema_registry=given.schema_registry,
        schema_registry_login=given.schema_registry_login,
        http_listen=given.http_listen,
    )
    return Entrance(given.bootstrap_servers, security), settings


def _ended(sentence: str, code: int) -> int:
    _say(sentence)
    return code


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
