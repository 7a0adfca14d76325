"""Gives an etcd the roles and users of a cluster, or writes the script that would.

Law: afterwards each role has exactly the rights of the table, and each user exactly its role, whatever they had before;
a second run changes nothing. Rights are granted before others are revoked, so a running process never lacks one that
the table gives it.

A change of a user or role makes all tokens of etcd stale. Clients log in again, and no request fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from kafscale.operations.sentences import Trouble
from kafscale.storage.etcd.passwords import read_password
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.operator_files import FileWrong
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import Rights, identity, rights_of

ROOT: Final = "root"
Report = Callable[[str], None]


class CannotApply(Trouble):
    """Something is missing. Nothing was changed. The text is a sentence."""


def passwords_in(folder: Path | None, names: Sequence[str]) -> Mapping[str, str]:
    """Those that have a file. Raises CannotApply if a file cannot be used."""
    if folder is None:
        return {}
    try:
        return {name: read_password(folder / name) for name in names if (folder / name).exists()}
    except FileWrong as wrong:
        raise CannotApply(str(wrong)) from wrong


class Apply:
    """`say` gets a line for each change."""

    def __init__(self, users: EtcdUsers, keys: Keyspace, passwords: Mapping[str, str], say: Report) -> None:
        self._users = users
        self._keys = keys
        self._passwords = passwords
        self._say = say

    async def run(self, roles: Sequence[Role], *, enable_auth: bool) -> None:
        """Raises CannotApply before the first change, and EtcdError."""
        await self._check([*((identity(self._keys, role), role) for role in roles)], enable_auth=enable_auth)
        for role in roles:
            name = identity(self._keys, role)
            await self._role(name, rights_of(self._keys, role))
            await self._user(name, role, name)
        if enable_auth:
            await self._enable()

    async def _check(self, users: list[tuple[str, str]], *, enable_auth: bool) -> None:
        if enable_auth:
            users.append((ROOT, ROOT))
        for user, file in users:
            if file not in self._passwords and await self._users.roles_of_user(user) is None:
                raise CannotApply(
                    f"there is no user {user} yet: put a password into the file {file} of --passwords"
                )

    async def _role(self, name: str, wanted: Rights) -> None:
        held = await self._users.rights_of_role(name)
        if held is None:
            await self._users.add_role(name)
            self._say(f"role {name} added")
            held = {}
        for keys, permission in wanted.items():
            if held.get(keys) is not permission:
                await self._users.grant(name, keys, permission)
                self._say(f"role {name}: {permission.value} granted from {keys.first.decode()}")
        for keys in held:
            if keys not in wanted:
                await self._users.revoke(name, keys)
                self._say(f"role {name}: revoked from {keys.first.decode(errors='replace')}")

    async def _user(self, user: str, file: str, role: str) -> None:
        held = await self._users.roles_of_user(user)
        password = self._passwords.get(file)
        if held is None:
            assert password is not None, "checked before"
            await self._users.add_user(user, password)
            self._say(f"user {user} added")
        elif password is not None and not await self._users.has_password(user, password):
            await self._users.change_password(user, password)
            self._say(f"user {user}: password set")
        if role not in (held or ()):
            await self._users.grant_role(user, role)
            self._say(f"user {user}: role {role} granted")
        for other in sorted((held or frozenset()) - {role}):
            await self._users.revoke_role(user, other)
            self._say(f"user {user}: role {other} revoked")

    async def _enable(self) -> None:
        if await self._users.rights_of_role(ROOT) is None:
            await self._users.add_role(ROOT)
        await self._user(ROOT, ROOT, ROOT)
        await self._users.enable()
        self._say("authentication is enabled")


HEAD: Final = """\
#!/bin/sh
# Roles and users of the cluster {namespace} in etcd, by `kafscale etcd-roles`. Run it once, on an etcd without them:
# `kafscale etcd-roles --apply` also changes what is there.
# PASSWORDS is a directory with one file for each user, whose name is the role: produce, fetch, and so on.
# ETCDCTL_* name the etcd.
set -eu
"""
TAIL: Final = """\

# When all processes have their user and password, and root has a password:
#   etcdctl role add root
#   etcdctl user add root --interactive=false < "$PASSWORDS/root"
#   etcdctl user grant-role root root
#   etcdctl auth enable
"""


def script(keys: Keyspace, roles: Sequence[Role]) -> str:
    """A shell script with etcdctl commands. It contains no password: etcdctl reads each from its standard input."""
    return HEAD.format(namespace=keys.namespace) + "".join(_of_role(keys, role) for role in roles) + TAIL


def _of_role(keys: Keyspace, role: Role) -> str:
    return "".join(f"{line}\n" for line in ("", *_commands(keys, role)))


def _commands(keys: Keyspace, role: Role) -> Iterator[str]:
    name = quote(identity(keys, role))
    yield f"etcdctl role add {name}"
    for each, permission in rights_of(keys, role).items():
        span = " ".join(quote(key.decode()) for key in (each.first, each.end) if key)
        yield f"etcdctl role grant-permission {name} {permission.value} {span}"
    yield f'etcdctl user add {name} --interactive=false < "$PASSWORDS/{role}"'
    yield f"etcdctl user grant-role {name} {name}"
