"""The cluster that a command's options name: the options, and how the work of a command runs on it.

Libraries of size are imported when the work begins, so that other commands do not wait for them. A known error ends the
process with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from kafscale.cli.options import DEFAULT_DATA_DIR, StoreKind, Target
from kafscale.cli.terminal import fail, fail_usage, notice

if TYPE_CHECKING:
    from kafscale.cli.clusters import Bucket, Cluster
    from kafscale.client.admin_client import Client
    from kafscale.client.security import ClientSecurity
    from kafscale.lake.catalog import Lake

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

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
    typer.Option("--data-dir", envvar="KAFSCALE_DATA_DIR", help="Data directory of `kafscale up`."),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server", "-b", envvar="KAFSCALE_BOOTSTRAP_SERVERS", help="host:port of a front door."
    ),
]


def file_of_profile(context: typer.Context, given: Path | None) -> Path | None:
    """The callback of every --command-config: `kafscale --profile NAME` names the file of that profile."""
    name = context.find_root().params.get("profile")
    if context.resilient_parsing or name is None:
        return given
    from kafscale.cli.profile.store import ProfileTrouble, profiles

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
StoreOption = Annotated[
    StoreKind, typer.Option(help="The --store value of `kafscale up` for this data directory.")
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the cluster. Default: the running cluster, or the settings.", callback=checked_namespace
    ),
]


class Trouble(Exception):
    """The work failed. The text is a sentence for the user."""


def on_cluster(work: Callable[[Cluster], Coroutine[Any, Any, T]], target: Target) -> T:
    """What `work` returns."""
    from kafscale.cli.clusters import opened

    async def run() -> T:
        async with opened(target, notice) as cluster:
            return await work(cluster)

    return finished(run())


def on_store(work: Callable[[Bucket], Coroutine[Any, Any, T]], target: Target) -> T:
    """What `work` returns. etcd is not asked."""
    from kafscale.cli.clusters import opened_store

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

    from kafscale.cli.clusters import NoCluster
    from kafscale.cli.datadir import DataDirBusy, DataDirUnusable, NotRunning
    from kafscale.runtime.etcd_binary import EtcdFailed
    from kafscale.runtime.etcd_program import EtcdMissing
    from kafscale.runtime.settings_load import BadSettings
    from kafscale.storage.etcd.client import EtcdError
    from kafscale.storage.objects import StoreError

    of_data_dir = (NotRunning, DataDirBusy, DataDirUnusable, EtcdMissing, EtcdFailed)
    known = (*of_data_dir, NoCluster, Trouble, EtcdError, StoreError)
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Kafka client connects, and how."""

    bootstrap: str
    security: ClientSecurity


def place_of(given: str | None, data_dir: Path | None, command_config: Path | None) -> Place:
    """The given address, or that of the file, or of the cluster that runs on the data directory. A --data-dir of the
    command line comes before an address of the environment or of the file.

    If none of the three is given, the profile in use is the file: its login is sent to no other address. Without one it
    is the cluster that runs on DEFAULT_DATA_DIR, else Kafka's default port here. A data directory that is named and on
    which no cluster runs is an error: a command must not reach another cluster instead.
    """
    from kafscale.client.properties import PropertiesWrong
    from kafscale.client.security import OPEN, read_security
    from kafscale.client.tokens import TokenTrouble

    if given is None and data_dir is None and command_config is None:
        command_config = _profile_in_use()
    try:
        security = OPEN if command_config is None else read_security(command_config)
        security.check_token()
    except PropertiesWrong as wrong:
        raise fail_usage(f"--command-config {wrong}") from wrong
    except TokenTrouble as trouble:
        raise fail(f"--command-config {command_config}: {trouble}") from trouble
    only_data_dir = on_the_line("data_dir")
    if only_data_dir and on_the_line("bootstrap_server"):
        raise fail_usage("--data-dir and --bootstrap-server both name a cluster; give one")
    if (named := given or security.bootstrap) is not None and not only_data_dir:
        return Place(named, security)
    from kafscale.cli.datadir import DataDir, DataDirUnusable, NotRunning

    try:
        if data_dir is not None:
            return Place(DataDir(data_dir).must_run().bootstrap_servers, security)
        running = DataDir(DEFAULT_DATA_DIR).running()
    except (NotRunning, DataDirUnusable) as trouble:
        raise fail(str(trouble)) from trouble
    return Place(DEFAULT_BOOTSTRAP if running is None else running.bootstrap_servers, security)


def on_the_line(parameter: str) -> bool:
    """Whether the user has written the option, so that its value comes neither from a default nor from a variable."""
    from typer._click.globals import get_current_context  # typer's own copy of click; the version is pinned

    context = get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def _profile_in_use() -> Path | None:
    from kafscale.cli.profile.store import ProfileTrouble, profiles

    found = profiles()
    try:
        return None if (name := found.current()) is None else found.path(name)
    except ProfileTrouble as trouble:
        raise fail_usage(f"{trouble} (it is in use; `kafscale profile leave` ends that)") from trouble


@contextmanager
def kafka(bootstrap: str | None, data_dir: Path | None, command_config: Path | None) -> Iterator[Client]:
    """A client of that cluster. Its errors end the process with their sentences."""
    from kafscale.cli.positions import PositionWrong
    from kafscale.client.admin_client import Client, KafkaTrouble

    place = place_of(bootstrap, data_dir, command_config)
    try:
        yield Client(place.bootstrap, place.security)
    except (KafkaTrouble, PositionWrong) as trouble:
        raise fail(str(trouble)) from trouble
