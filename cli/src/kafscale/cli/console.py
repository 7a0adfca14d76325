"""`kafscale console`: the options of the web console."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from kafscale.cli.targets import (
    BootstrapOption,
    CommandConfigOption,
    DataDirOption,
    NamespaceOption,
    StoreOption,
    finished,
    place_of,
)
from kafscale.cli.terminal import fail_usage, notice
from kafscale.operations.target import StoreKind, Target

RegistryOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Decode records by this Confluent-compatible registry of schemas."),
]
RegistryLoginOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Has user:password for the registry.")
]


def console(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page.")] = 8480,
    listen: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    data_dir: DataDirOption = None,
    bootstrap_server: BootstrapOption = None,
    command_config: CommandConfigOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Without everything that changes the cluster.")
    ] = False,
    everyone_acts_as_profile: Annotated[
        bool,
        typer.Option(
            "--everyone-acts-as-profile",
            help="With --read-only: everyone who reaches --listen acts as the user of --command-config.",
        ),
    ] = False,
    no_direct: Annotated[
        bool,
        typer.Option("--no-direct", help="Be a Kafka client only: read neither etcd nor the object store."),
    ] = False,
    tls_certificate: Annotated[Path | None, typer.Option(help="Certificate chain of the page (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Address of the page in browsers, if a proxy is in front of it."),
    ] = None,
    schema_registry: RegistryOption = None,
    schema_registry_login: RegistryLoginOption = None,
) -> None:
    """Show the cluster in a web page: topics, records, groups. Example: kafscale console --data-dir data

    If the file of --command-config has SASL and no sasl.jaas.config, each person logs in with a Kafka user.
    """
    from kafscale.console.logins import Entrance
    from kafscale.console.server import serve
    from kafscale.console.settings import ConsoleSettings, mistake

    place = place_of(bootstrap_server, data_dir, command_config, login_later=True)
    entrance = Entrance(place.bootstrap, place.security)
    settings = ConsoleSettings(
        port=port,
        listen=listen,
        read_only=read_only,
        everyone_acts_as_profile=everyone_acts_as_profile,
        certificate=tls_certificate,
        key=tls_key,
        behind_proxy=behind_proxy,
        target=None if no_direct else Target(data_dir, namespace, store),
        schema_registry=schema_registry,
        schema_registry_login=schema_registry_login,
    )
    if (wrong := mistake(settings, entrance.mode)) is not None:
        raise fail_usage(wrong)
    finished(serve(entrance, settings, lambda url: notice(f"Console: {url}")))
