"""`kafscale users`: SCRAM users, asked of a front door, or written to etcd before anybody can log in."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.passwords import PasswordFileOption, password_from
from kafscale.cli.targets import (
    BootstrapOption,
    CommandConfigOption,
    DataDirOption,
    NamespaceOption,
    kafka,
    on_cluster,
)
from kafscale.cli.terminal import Output, OutputOption, fail, fail_usage, notice, show_rows
from kafscale.operations.target import Target

if TYPE_CHECKING:
    from kafscale.access.scram_credentials import ScramCredential
    from kafscale.operations.clusters import Cluster

app = typer.Typer(
    name="users",
    help="Create, list and remove the users of SASL/SCRAM and SASL/PLAIN, and change their passwords.",
    no_args_is_help=True,
)


class Mechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


UserArgument = Annotated[str, typer.Argument(help="Name of the user.")]
MechanismOption = Annotated[
    list[Mechanism] | None,
    typer.Option("--mechanism", "-m", case_sensitive=False, help="Only this one; can be repeated."),
]
IterationsOption = Annotated[
    int, typer.Option(min=4_096, max=16_384, help="Cost of a guess, and of each login.")
]
EtcdOption = Annotated[
    bool,
    typer.Option(
        "--etcd",
        help="Write to etcd (of --data-dir or KAFSCALE_ETCD_*) without a front door: for the first admin.",
    ),
]


@app.command()
def add(
    user: UserArgument,
    mechanism: MechanismOption = None,
    iterations: IterationsOption = 4_096,
    password_file: PasswordFileOption = None,
    etcd: EtcdOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Create a user. Example: kafscale users add alice

    The first admin, before the first start: kafscale users add admin --etcd --data-dir data
    """
    wanted = mechanism or list(Mechanism)
    _check(user, etcd, namespace)
    password = password_from(password_file, user)
    if etcd:
        created = _create_in_etcd(user, password, wanted, iterations, Target(data_dir, namespace))
    else:
        from kafscale.client.users import mechanisms_of, store_password

        with kafka(bootstrap_server, data_dir, command_config) as client:
            created = not mechanisms_of(client, user)
            if created:
                store_password(client, user, password, wanted, iterations)
    if not created:
        raise fail(f"user '{user}' exists already; `kafscale users passwd` changes the password")
    notice(f"created user '{user}' with {_listed(wanted)}")


@app.command()
def passwd(
    user: UserArgument,
    mechanism: MechanismOption = None,
    iterations: IterationsOption = 4_096,
    password_file: PasswordFileOption = None,
    etcd: EtcdOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    namespace: NamespaceOption = None,
) -> None:
    """Change a password, for the mechanisms that the user has. Example: kafscale users passwd alice

    --etcd also repairs a credential that cannot be read.
    """
    wanted = mechanism or list(Mechanism)
    _check(user, etcd, namespace)
    password = password_from(password_file, user)
    if etcd:
        changed = _replace_in_etcd(user, password, wanted, iterations, Target(data_dir, namespace))
    else:
        from kafscale.client.users import mechanisms_of, store_password

        with kafka(bootstrap_server, data_dir, command_config) as client:
            changed = [name for name in mechanisms_of(client, user) if name in wanted]
            store_password(client, user, password, changed, iterations)
    if not changed:
        raise fail(
            f"user '{user}' has no password for {_listed(wanted)}; `kafscale users add` creates a user"
        )
    notice(f"changed the password of user '{user}' for {_listed(changed)}")


@app.command()
def remove(
    user: UserArgument,
    mechanism: MechanismOption = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
) -> None:
    """Remove a user, or the password for one mechanism. ACLs and quotas stay. Example: kafscale users remove alice"""
    from kafscale.client.users import remove_user

    with kafka(bootstrap_server, data_dir, command_config) as client:
        removed = remove_user(client, user, mechanism or list(Mechanism))
    notice(f"removed {_listed(removed)} of user '{user}'")


@app.command("list")
def list_(
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all users with their mechanisms. Example: kafscale users list --output json"""
    from kafscale.client.users import list_users

    with kafka(bootstrap_server, data_dir, command_config) as client:
        found = list_users(client)
    show_rows(["user", "mechanism", "iterations"], found.rows, output)
    if found.troubles:
        raise fail("\n".join(map(str, found.troubles)))
    if not found.rows:
        notice("no users yet: create one with `kafscale users add NAME`")


def _listed(mechanisms: Sequence[str]) -> str:
    return " and ".join(mechanisms)


def _check(user: str, etcd: bool, namespace: str | None) -> None:
    if not user:
        raise fail_usage("the name of the user is empty")
    if namespace is not None and not etcd:
        raise fail_usage("--namespace is for --etcd: a front door has its own namespace")


def _credentials(password: str, mechanisms: Sequence[Mechanism], iterations: int) -> list[ScramCredential]:
    from kafscale.access.scram_credentials import ScramMechanism
    from kafscale.storage.user_writes import credentials_for

    wanted = [each for each in ScramMechanism if each.sasl_name in mechanisms]
    return credentials_for(password, wanted, iterations)


def _create_in_etcd(
    user: str, password: str, mechanisms: Sequence[Mechanism], iterations: int, target: Target
) -> bool:
    """A data directory that does not exist is made, as `kafscale up` makes it."""
    from kafscale.operations.datadir import DataDir, DataDirBusy, DataDirUnusable
    from kafscale.storage.access_keys import AccessKeys
    from kafscale.storage.user_writes import create_user

    if target.data_dir is not None and not (data := DataDir(target.data_dir)).etcd.is_dir():
        try:
            data.acquire()
        except (DataDirBusy, DataDirUnusable) as trouble:
            raise fail(str(trouble)) from trouble
        data.release()

    async def work(cluster: Cluster) -> bool:
        credentials = _credentials(password, mechanisms, iterations)
        return await create_user(cluster.etcd, AccessKeys(cluster.keys), user, credentials)

    return on_cluster(work, target)


def _replace_in_etcd(
    user: str, password: str, mechanisms: Sequence[Mechanism], iterations: int, target: Target
) -> list[str]:
    from kafscale.storage.access_keys import AccessKeys
    from kafscale.storage.user_writes import replace_credentials

    async def work(cluster: Cluster) -> list[str]:
        credentials = _credentials(password, mechanisms, iterations)
        replaced = await replace_credentials(cluster.etcd, AccessKeys(cluster.keys), user, credentials)
        return [each.sasl_name for each in replaced]

    return on_cluster(work, target)
