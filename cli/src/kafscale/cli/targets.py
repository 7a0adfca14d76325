"""The cluster that a command's options name: the options, and how the work of a command runs on it.

Libraries of size are imported when the work begins, so that other commands do not wait for them. A known error ends the
process with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from kafscale.cli.options import DataDirType
from kafscale.cli.terminal import fail, fail_usage, notice
from kafscale.operations.sentences import Trouble
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.client.admin_client import Client
    from kafscale.lake.catalog import Lake
    from kafscale.operations.bootstrap import Place
    from kafscale.operations.clusters import Bucket, Cluster
    from kafscale.runtime.settings import ServiceSettings

T = TypeVar("T")


def checked_namespace(context: typer.Context, name: str | None) -> str | None:
    """The callback of every --namespace. It refuses a bad name before anything is opened or started."""
    from kafscale.storage.keys import check_namespace

    if name is None or context.resilient_parsing:  # the second: a shell completes the line
        return name
    try:
        return check_namespace(name)
    except ValueError as wrong:
        raise fail_usage(str(wrong)) from wrong


DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="KAFSCALE_DATA_DIR",
        help="Data directory of `kafscale up`.",
        click_type=DataDirType(),
    ),
]


def checked_bootstrap(context: typer.Context, given: str | None) -> str | None:
    """The callback of every --bootstrap-server."""
    from kafscale.runtime.addresses import split_address

    if given is None or context.resilient_parsing:
        return given
    try:
        for address in given.split(","):
            split_address(address.strip())
    except ValueError as wrong:
        raise fail_usage(f"--bootstrap-server: {wrong}") from wrong
    return given


BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="KAFSCALE_BOOTSTRAP_SERVERS",
        help="host:port of a front door.",
        callback=checked_bootstrap,
    ),
]


def file_of_profile(context: typer.Context, given: Path | None) -> Path | None:
    """The callback of every --command-config: `kafscale --profile NAME` names the file of that profile."""
    name = context.find_root().params.get("profile")
    if context.resilient_parsing or name is None:
        return given
    from kafscale.operations.profiles import ProfileTrouble, profiles

    if given is not None:
        raise fail_usage("--profile and --command-config both name the settings; give one")
    try:
        return profiles().path(name)
    except ProfileTrouble as trouble:
        raise fail_usage(str(trouble)) from trouble


CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="KAFSCALE_COMMAND_CONFIG",
        help="File of settings as Kafka's tools take them: security.protocol, sasl.*, ssl.* (PEM).",
        callback=file_of_profile,
    ),
]
EtcdOption = Annotated[
    str | None,
    typer.Option("--etcd", help="etcd's client URLs, comma-separated, instead of a data directory."),
]
StoreOption = Annotated[
    StoreKind, typer.Option(help="The --store value of `kafscale up` for this data directory.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the cluster. Default: the running cluster, or the settings.", callback=checked_namespace
    ),
]


def on_cluster(work: Callable[[Cluster], Coroutine[Any, Any, T]], target: Target) -> T:
    """What `work` returns."""
    from kafscale.operations.clusters import opened

    async def run() -> T:
        async with opened(target, notice) as cluster:
            return await work(cluster)

    return finished(run())


def on_store(work: Callable[[Bucket], Coroutine[Any, Any, T]], target: Target) -> T:
    """What `work` returns. etcd is not asked."""
    from kafscale.operations.clusters import opened_store

    async def run() -> T:
        async with opened_store(target) as bucket:
            return await work(bucket)

    return finished(run())


def on_lake(work: Callable[[Lake], Coroutine[Any, Any, T]], target: Target) -> T:
    """What `work` returns."""
    from kafscale.lake.catalog import Lake
    from kafscale.lake.heads import CorruptSegment
    from kafscale.lake.sql import QueryFailed
    from kafscale.lake.unknown import UnknownName
    from kafscale.storage.history.history import History
    from kafscale.storage.history.witness import WentBack

    async def run(cluster: Cluster) -> T:
        try:
            history = History(cluster.etcd, cluster.keys, cluster.store)
            return await work(Lake(cluster.etcd, cluster.keys, cluster.store, history))
        except (QueryFailed, CorruptSegment, UnknownName, WentBack) as trouble:
            raise Trouble(str(trouble)) from trouble

    return on_cluster(run, target)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. A known error ends the process with its sentence."""
    try:
        return _finished(work)
    finally:
        work.close()  # if Ctrl-C came before its first step, Python would warn that it never ran


def _finished(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    from kafscale.runtime.etcd_binary import EtcdFailed
    from kafscale.runtime.etcd_program import EtcdMissing
    from kafscale.runtime.settings_load import BadSettings
    from kafscale.storage.etcd.client import EtcdError
    from kafscale.storage.objects import StoreError

    known = (Trouble, EtcdMissing, EtcdFailed, EtcdError, StoreError)
    try:
        return asyncio.run(work)
    except known as trouble:
        raise fail(str(trouble)) from trouble
    except ExceptionGroup as group:  # of concurrent tasks: the first error is the reason
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, known):
            raise
        raise fail(str(first)) from group
    except BadSettings as bad:
        raise fail_usage(str(bad)) from bad


def place_of(
    given: str | None, data_dir: Path | None, command_config: Path | None, *, login_later: bool = False
) -> Place:
    """By `bootstrap.place_of`. A --data-dir of the command line comes before an address of the environment. Errors end
    the process with their sentences."""
    from kafscale.client.properties import PropertiesWrong
    from kafscale.client.tokens import TokenTrouble
    from kafscale.operations import bootstrap
    from kafscale.operations.profiles import ProfileTrouble

    only_data_dir = on_the_line("data_dir")
    if only_data_dir and on_the_line("bootstrap_server"):
        raise fail_usage("--data-dir and --bootstrap-server both name a cluster; give one")
    try:
        return bootstrap.place_of(
            given, data_dir, command_config, data_dir_first=only_data_dir, login_later=login_later
        )
    except PropertiesWrong as wrong:
        raise fail_usage(f"--command-config {wrong}") from wrong
    except ProfileTrouble as trouble:
        raise fail_usage(str(trouble)) from trouble
    except TokenTrouble as trouble:
        raise fail(f"--command-config {trouble}") from trouble
    except Trouble as trouble:
        raise fail(str(trouble)) from trouble


def settings_of(data_dir: Path | None, endpoints: str | None, namespace: str | None) -> ServiceSettings:
    """By `clusters.etcd_settings`. Raises Trouble, BadSettings and typer.Exit."""
    from kafscale.operations.clusters import etcd_settings

    if endpoints is not None and on_the_line("data_dir"):
        raise fail_usage("--data-dir and --etcd both name a cluster; give one")
    return etcd_settings(data_dir, endpoints, namespace)


def on_the_line(parameter: str) -> bool:
    """Whether the user has written the option, so that its value comes neither from a default nor from a variable."""
    from typer._click.globals import get_current_context  # typer's own copy of click; the version is pinned

    context = get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


@contextmanager
def kafka(bootstrap: str | None, data_dir: Path | None, command_config: Path | None) -> Iterator[Client]:
    """A client of that cluster. Its errors end the process with their sentences."""
    from kafscale.client.admin_client import Client, KafkaTrouble
    from kafscale.operations.positions import PositionWrong

    place = place_of(bootstrap, data_dir, command_config)
    try:
        yield Client(place.bootstrap, place.security)
    except (KafkaTrouble, PositionWrong) as trouble:
        raise fail(str(trouble)) from trouble
