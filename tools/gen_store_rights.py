"""Writes docs/security/: the etcd roles and the S3 policies of each role, for operators to apply, and their tables.

They are those of the cluster `default` in the bucket `kafscale`; `kafscale etcd-roles` and `kafscale s3-policy` print
them for another one.
"""

import json
import sys
from pathlib import Path
from typing import Final

from kafscale.operations.rights import script
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import Permission, rights_of
from kafscale.storage.rights.objects import Action, grants_of, policy_of

from tools.generated import ROOT, write_or_check

FOLDER: Final = ROOT / "docs" / "security"
KEYS: Final = Keyspace("default")
BUCKET: Final = "kafscale"
_MARK: Final = {Permission.READ: "r", Permission.WRITE: "w", Permission.READWRITE: "rw"}

HEAD = """\
# Rights at the stores

What each role may do in etcd and in the bucket; [security-stores.md](../security-stores.md) says how to use it.
Written by `tools/gen_store_rights.py` from `libs/storage/…/rights/`; do not edit.
"""


def etcd_table() -> str:
    """A row for each range of keys, a column for each role."""
    rights = {role: rights_of(KEYS, role) for role in Role}
    root = KEYS.root().decode()
    rows = []
    for each in sorted({each for some in rights.values() for each in some}):
        first, end = (key.decode().removeprefix(root) for key in (each.first, each.end))
        is_prefix = not end or end[:-1] == first[:-1]
        name = f"`{first}`" if is_prefix else f"`{first}` up to `{end}`"
        marks = [_MARK[some[each]] if each in some else "" for some in rights.values()]
        rows.append(f"| {' | '.join((name, *marks))} |")
    head = f"| keys below `/kafscale/{{namespace}}/` | {' | '.join(Role)} |\n|{'---|' * (len(Role) + 1)}"
    return "\n".join(("## etcd", "", head, *rows)) + "\n"


def object_table() -> str:
    """A row for each role, a column for each action."""
    rows = []
    for role in Role:
        grants = grants_of(KEYS, role)
        cells = [_cell([each.prefix for each in grants if each.action is action]) for action in Action]
        rows.append(f"| {' | '.join((role, *cells))} |")
    head = f"| role | {' | '.join(f'`{action.value}`' for action in Action)} |\n|{'---|' * (len(Action) + 1)}"
    return "\n".join(("## The bucket", "", head, *rows)) + "\n"


def _cell(prefixes: list[str]) -> str:
    names = (prefix.replace(f"{KEYS.namespace}/", "{namespace}/") for prefix in prefixes)
    return ", ".join(f"`{name}*`" if name else "the bucket" for name in names)


def files() -> dict[Path, str]:
    found = {
        FOLDER / "rights.md": "\n".join((HEAD, etcd_table(), object_table())),
        FOLDER / "etcd-roles.sh": script(KEYS, list(Role)),
    }
    for role in Role:
        policy = policy_of(KEYS, role, BUCKET)
        if policy is not None:
            found[FOLDER / f"s3-{role}.json"] = json.dumps(policy, indent=2) + "\n"
    return found


def main() -> int:
    return write_or_check(files(), FOLDER.glob("*"))


if __name__ == "__main__":
    sys.exit(main())
