"""The users of KAFSCALE_BOOTSTRAP_USERS_FILE, which exist when the first admin is ready.

Each line is NAME:PASSWORD. Empty lines and lines that begin with # are ignored. A user who has a credential already is
left alone, so the file may stay where it is after the password was changed. Every user gets both mechanisms. No error
shows the content of a line.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import structlog
from kafscale.storage.access_keys import USER_CHARS_MAX, AccessKeys
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.operator_files import FileWrong, read_text
from kafscale.storage.user_writes import create_user, credentials_for, exists

log = structlog.get_logger(__name__)

USERS_MAX: Final = 1_000
FILE_BYTES_MAX: Final = 1 << 20
COMMENT: Final = "#"


class UsersFileWrong(Exception):
    """The file cannot be read, or a line has no form NAME:PASSWORD. The text is for the operator."""


def read_users(path: Path) -> dict[str, str]:
    """Names and passwords. Raises UsersFileWrong."""
    try:
        lines = read_text(path, FILE_BYTES_MAX).splitlines()
    except FileWrong as wrong:
        raise UsersFileWrong(f"{path}: {wrong}") from wrong
    users: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(COMMENT):
            continue
        name, _, password = line.partition(":")
        if not name or not password or len(name) > USER_CHARS_MAX:
            raise UsersFileWrong(f"{path}, line {number}: not NAME:PASSWORD")
        if name in users:
            raise UsersFileWrong(f"{path}, line {number}: its user has a line already")
        users[name] = password
    if len(users) > USERS_MAX:
        raise UsersFileWrong(f"{path}: {len(users)} users, {USERS_MAX} at most")
    return users


async def bootstrap(etcd: EtcdClient, keys: AccessKeys, users: dict[str, str]) -> None:
    """Creates the users who have no credential. It tries again while etcd does not answer.

    It writes nothing if all exist: etcd refuses a write when it is full, even one whose comparison fails.
    """
    backoff = Backoff()
    for name, password in users.items():
        while True:
            try:
                if not await exists(etcd, keys, name):
                    credentials = await asyncio.to_thread(credentials_for, password)
                    if await create_user(etcd, keys, name, credentials):
                        log.info("user created from the file of first users", user=name)
                break
            except EtcdError as error:
                log.warning("first users not created yet", why=str(error))
                await backoff.sleep()
