"""The watched copy of users and ACLs in a process, and the authorizer that decides by it.

Laws: a process without an authorizer asks nobody. A process with one serves no request before its copy is complete, and
every record of it could be read: half of the ACLs may lack the half that denies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kafscale.access.authorizer import Authorizer
from kafscale.runtime.metrics import Metrics, Row
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.views import PrefixView


class ProcessAccess:
    """The view of one process, which starts in `tasks` at its first use. `acls_only`: without users and quotas."""

    def __init__(
        self, etcd: EtcdClient, keyspace: Keyspace, *, acls_only: bool, tasks: asyncio.TaskGroup
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._acls_only = acls_only
        self._tasks = tasks
        self._view: AccessView | None = None

    @property
    def view(self) -> AccessView:
        """Await its ready() or loaded()."""
        if self._view is None:
            self._view = AccessView(self._etcd, self._keyspace, acls_only=self._acls_only)
            self._tasks.create_task(self._view.run())
        return self._view

    @property
    def views(self) -> Mapping[str, PrefixView[Any]]:
        """The views that run, for `watch_views`; none if nothing has used them."""
        return {} if self._view is None else self._view.views

    def _age(self) -> Iterable[Row]:
        return [] if self._view is None else [((), self._view.age_s())]

    def watch(self, metrics: Metrics) -> None:
        metrics.watch_each("access_view_age_seconds", self._age)


def authorizer_of(settings: ServiceSettings, access: ProcessAccess) -> Authorizer | None:
    """None: the settings name no authorizer. Only an authorizer starts the view."""
    if settings.authorizer == "none":
        return None
    return Authorizer(
        access.view.acls,
        super_users=settings.super_users,
        allow_everyone_if_no_acl_found=settings.allow_everyone_if_no_acl_found,
    )
