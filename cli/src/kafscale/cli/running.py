"""Runs a command's work on the cluster that its options name, and tells trouble in a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafscale.cli.datadir import DataDirBusy
from kafscale.cli.options import StoreKind
from kafscale.cli.terminal import fail, fail_usage, notice
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdMissing

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster

T = TypeVar("T")


class Trouble(Exception):
    """The work could not be done; the text is a sentence for the person who asked for it."""


def on_cluster(
    work: Callable[[Cluster], Coroutine[Any, Any, T]],
    data_dir: Path | None,
    namespace: str | None,
    store: StoreKind,
) -> T:
    """What `work` returns. Libraries of size are imported here, so that other commands do not wait for them."""
    from kafscale.cli.clusters import opened

    async def run() -> T:
        async with opened(data_dir, namespace, store.value, notice) as cluster:
            return await work(cluster)

    return telling(run())


def telling(work: Coroutine[Any, Any, T]) -> T:
    """What it returns; what commands know to go wrong ends the process with a sentence."""
    from kafscale.cli.clusters import NoCluster
    from kafscale.runtime.settings_load import BadSettings
    from kafscale.storage.etcd.client import EtcdError
    from kafscale.storage.objects import StoreError

    known = (NoCluster, DataDirBusy, EtcdMissing, EtcdFailed, Trouble, EtcdError, StoreError)
    try:
        return asyncio.run(work)
    except known as trouble:
        raise fail(str(trouble)) from trouble
    except ExceptionGroup as group:  # of tasks side by side: the first says why
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        if not isinstance(first, known):
            raise
        raise fail(str(first)) from group
    except BadSettings as bad:
        raise fail_usage(str(bad)) from bad
