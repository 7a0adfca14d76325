"""`kafscale etcd-roles` and `kafscale s3-policy`: least privilege at the two stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.targets import NamespaceOption, finished
from kafscale.cli.terminal import fail_usage, notice, report
from kafscale.storage.rights import Role

if TYPE_CHECKING:
    from kafscale.runtime.settings import ServiceSettings

RoleOption = Annotated[list[Role] | None, typer.Option("--role", help="Only this role; repeatable.")]
PasswordsOption = Annotated[
    Path | None,
    typer.Option(
        "--passwords",
        help="Directory with a file for each user: its name is the role's (or root), its content the password.",
    ),
]


def etcd_roles(
    role: RoleOption = None,
    apply: Annotated[bool, typer.Option("--apply", help="Change the etcd of KAFSCALE_ETCD_*.")] = False,
    passwords: PasswordsOption = None,
    enable_auth: Annotated[
        bool, typer.Option("--enable-auth", help="With --apply: also the user root, then authentication.")
    ] = False,
    namespace: NamespaceOption = None,
) -> None:
    """Print the etcd roles and users of all processes as etcdctl commands, or give them to an etcd.

    Example: kafscale etcd-roles --apply --passwords /etc/kafscale/etcd-users. A second run changes nothing;
    after an upgrade it changes what the new version needs. Once authentication is enabled, run it as root.
    """
    roles = role or list(Role)
    if not apply and (passwords is not None or enable_auth):
        raise fail_usage("--passwords and --enable-auth need --apply")
    if apply:
        finished(_apply(roles, passwords, namespace, enable_auth=enable_auth))
        return
    from kafscale.operations.rights import script
    from kafscale.storage.keys import Keyspace

    typer.echo(script(Keyspace(_settings(namespace).namespace), roles), nl=False)


async def _apply(
    roles: list[Role], passwords: Path | None, namespace: str | None, *, enable_auth: bool
) -> None:
    from kafscale.operations.clusters import opened_etcd
    from kafscale.operations.rights import ROOT, Apply, passwords_in
    from kafscale.storage.etcd.users import EtcdUsers
    from kafscale.storage.keys import Keyspace

    settings = _settings(namespace)
    async with opened_etcd(settings) as etcd:
        users = EtcdUsers(etcd.access)
        try:
            found = passwords_in(passwords, [*roles, ROOT])
            apply = Apply(users, Keyspace(settings.namespace), found, report)
            await apply.run(roles, enable_auth=enable_auth)
        finally:
            await users.close()


def s3_policy(
    role: Annotated[Role, typer.Argument(help="The role whose key gets the policy.")],
    bucket: Annotated[
        str | None, typer.Option(help="Name of the bucket. Default: KAFSCALE_S3_BUCKET.")
    ] = None,
    namespace: NamespaceOption = None,
) -> None:
    """Print the IAM policy of a role for the bucket, as JSON. Example: kafscale s3-policy fetch --bucket records"""
    from kafscale.storage.keys import Keyspace
    from kafscale.storage.rights.objects import policy_of

    settings = _settings(namespace)
    policy = policy_of(Keyspace(settings.namespace), role, bucket or settings.s3_bucket)
    if policy is None:
        notice(f"{role} sends no request to the bucket: give it no key")
        return
    typer.echo(json.dumps(policy, indent=2))


def _settings(namespace: str | None) -> ServiceSettings:
    from kafscale.operations.clusters import named
    from kafscale.runtime.settings import ServiceSettings
    from kafscale.runtime.settings_load import BadSettings, read_settings

    try:
        return read_settings(ServiceSettings, named(namespace))
    except BadSettings as bad:
        raise fail_usage(str(bad)) from bad
