"""`kafscale profile`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from kafscale.access.protocol import SecurityProtocol
from kafscale.cli.passwords import PasswordFileOption, password_from
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, notice, show_rows
from kafscale.operations.profiles import BOOTSTRAP, SHOWN, Profiles, ProfileTrouble, profiles

HIDDEN: Final = "(hidden)"
LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
LOCATIONS: Final = ("ssl.truststore.location", "ssl.keystore.location")

NameArgument = Annotated[
    str, typer.Argument(autocompletion=lambda: profiles().names(), help="Name of the profile.")
]
BrokerOption = Annotated[
    str | None, typer.Option("--bootstrap-server", "-b", help="host:port of a broker; several with commas.")
]
FromOption = Annotated[
    Path | None, typer.Option("--from", help="Copy the settings of this file, as --command-config takes it.")
]
ProtocolOption = Annotated[
    SecurityProtocol | None,
    typer.Option(
        "--security-protocol",
        case_sensitive=False,
        help="Default: SASL_SSL with --user, SSL with --ca or --certificate, else PLAINTEXT.",
    ),
]
CaOption = Annotated[Path | None, typer.Option(help="PEM file of the CA. Default: the CAs of the system.")]
CertificateOption = Annotated[
    Path | None, typer.Option(help="PEM file with the certificate of the client, and its key.")
]
UserOption = Annotated[str | None, typer.Option(help="Name for the login.")]
MechanismOption = Annotated[str, typer.Option(help=f"One of {', '.join(LOGIN_MODULES)}.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a profile of this name.")]
UseOption = Annotated[bool, typer.Option("--use/--no-use", help="Use it from now on.")]

app = typer.Typer(
    name="profile",
    help="Name clusters: their addresses and logins, for all commands that use the Kafka protocol.",
    no_args_is_help=True,
)


@app.command()
def create(
    name: NameArgument,
    bootstrap_server: BrokerOption = None,
    source: FromOption = None,
    security_protocol: ProtocolOption = None,
    ca: CaOption = None,
    certificate: CertificateOption = None,
    user: UserOption = None,
    mechanism: MechanismOption = "SCRAM-SHA-512",
    password_file: PasswordFileOption = None,
    force: ForceOption = False,
    use_it: UseOption = True,
) -> None:
    """Create a profile, and use it from now on.

    Example: kafscale profile create prod -b kafka:9094 --ca ca.crt --user alice

    It asks for the password. The profile is a file that only you can read.
    """
    with _troubles():
        if name in (existing := profiles()).names() and not force:
            raise ProfileTrouble(f"profile '{name}' exists already; --force replaces it")
    settings = {} if source is None else _copied(source)
    if bootstrap_server is not None:
        settings[BOOTSTRAP] = bootstrap_server
    _add_security(settings, security_protocol, ca, certificate)
    if user is not None:
        _add_login(settings, user, mechanism, password_file)
    _check(settings)
    with _troubles():
        existing.create(name, settings)
        if use_it:
            existing.use(name)
    notice(f"created profile '{name}'" + (", which is now in use" if use_it else ""))


def _copied(path: Path) -> dict[str, str]:
    from kafscale.client.properties import PropertiesWrong, read_settings

    try:
        settings = read_settings(path)
    except PropertiesWrong as wrong:
        raise fail_usage(f"--from {wrong}") from wrong
    return settings | {name: str(Path(settings[name]).absolute()) for name in LOCATIONS if settings.get(name)}


def _add_security(
    settings: dict[str, str], protocol: SecurityProtocol | None, ca: Path | None, certificate: Path | None
) -> None:
    if protocol is not None:
        settings["security.protocol"] = protocol.value
    for kind, path in (("truststore", ca), ("keystore", certificate)):
        if path is not None:
            settings |= {f"ssl.{kind}.type": "PEM", f"ssl.{kind}.location": str(path.absolute())}
            settings.setdefault("security.protocol", SecurityProtocol.SSL.value)


def _add_login(settings: dict[str, str], user: str, mechanism: str, password_file: Path | None) -> None:
    from kafscale.client.properties import format_jaas

    if (module := LOGIN_MODULES.get(mechanism.upper())) is None:
        raise fail_usage(f"--mechanism: '{mechanism}' is not one of {', '.join(LOGIN_MODULES)}")
    protocol = settings.get("security.protocol", SecurityProtocol.SSL.value)
    with_login = {"SSL": SecurityProtocol.SASL_SSL, "PLAINTEXT": SecurityProtocol.SASL_PLAINTEXT}
    settings["security.protocol"] = with_login.get(protocol, protocol)
    settings["sasl.mechanism"] = mechanism.upper()
    options = {"username": user, "password": password_from(password_file, user)}
    settings["sasl.jaas.config"] = format_jaas(module, options)


def _check(settings: dict[str, str]) -> None:
    from kafscale.client.properties import PropertiesWrong
    from kafscale.client.security import security_of

    if BOOTSTRAP not in settings:
        raise fail_usage("--bootstrap-server is missing")
    try:
        security_of(settings).context()
    except PropertiesWrong as wrong:
        raise fail_usage(str(wrong)) from wrong


@app.command("list")
def list_(output: OutputOption = Output.TABLE) -> None:
    """Show all profiles. Example: kafscale profile list"""
    with _troubles():
        found = profiles()
        rows = [_row(found, name) for name in found.names()]
    show_rows(["profile", "in_use", "bootstrap_servers", "security_protocol"], rows, output)
    if not rows:
        notice("no profiles yet: create one with `kafscale profile create NAME -b HOST:PORT`")


def _row(found: Profiles, name: str) -> dict[str, object]:
    settings = found.settings(name)
    return {
        "profile": name,
        "in_use": name == found.current(),
        "bootstrap_servers": settings.get(BOOTSTRAP),
        "security_protocol": settings.get("security.protocol", SecurityProtocol.PLAINTEXT.value),
    }


@app.command()
def show(name: NameArgument, output: OutputOption = Output.TABLE) -> None:
    """Show the settings of a profile, without its passwords and keys. Example: kafscale profile show prod"""
    with _troubles():
        settings = profiles().settings(name)
    rows = [{"setting": key, "value": value if key in SHOWN else HIDDEN} for key, value in settings.items()]
    show_rows(["setting", "value"], rows, output)


@app.command()
def use(name: NameArgument) -> None:
    """Use a profile from now on. Example: kafscale profile use prod

    It applies if none of --bootstrap-server, --command-config, --data-dir and their variables is given.
    """
    with _troubles():
        profiles().use(name)
    notice(f"profile '{name}' is now in use")


@app.command()
def leave() -> None:
    """Use no profile from now on. Example: kafscale profile leave"""
    profiles().leave()
    notice("no profile is in use")


@app.command()
def delete(name: NameArgument) -> None:
    """Delete a profile. Example: kafscale profile delete prod"""
    with _troubles():
        profiles().delete(name)
    notice(f"deleted profile '{name}'")


@contextmanager
def _troubles() -> Iterator[None]:
    from kafscale.client.properties import PropertiesWrong

    try:
        yield
    except (ProfileTrouble, PropertiesWrong) as trouble:
        raise fail(str(trouble)) from trouble
    except OSError as error:
        raise fail(f"{error.filename}: {error.strerror}") from error
