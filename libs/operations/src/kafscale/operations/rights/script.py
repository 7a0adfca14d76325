"""The roles and users of a cluster as a shell script with etcdctl commands. Pure.

The script contains no password: etcdctl reads each from its standard input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import identity, rights_of

HEAD = """\
#!/bin/sh
# Roles and users of the cluster {namespace} in etcd, by `kafscale etcd-roles`. Run it once, on an etcd without them:
# `kafscale etcd-roles --apply` also changes what is there.
# PASSWORDS is a directory with one file for each user, whose name is the role: produce, fetch, and so on.
# ETCDCTL_* name the etcd.
set -eu
"""
TAIL = """\

# When all processes have their user and password, and root has a password:
#   etcdctl role add root
#   etcdctl user add root --interactive=false < "$PASSWORDS/root"
#   etcdctl user grant-role root root
#   etcdctl auth enable
"""


def script(keys: Keyspace, roles: Sequence[Role]) -> str:
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
