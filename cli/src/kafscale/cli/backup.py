"""`kafscale backup create`, `list` and `get`. The second and third need the object store only: etcd may be lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import seconds
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_cluster, on_store
from kafscale.cli.terminal import Output, OutputOption, notice, show_rows
from kafscale.operations.sentences import Trouble, counted
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.operations.clusters import Bucket, Cluster

app = typer.Typer(
    name="backup", help="Store snapshots of etcd in the object store, and read them.", no_args_is_help=True
)
COLUMNS: Final = ("time", "bytes", "parts")
TIME: Final = "%Y-%m-%dT%H:%M:%SZ"

KeepOption = Annotated[int, typer.Option(min=1, help="Keep at least this many snapshots.")]
KeepForOption = Annotated[str, typer.Option(help="Keep all snapshots that are younger: 7d, 12h.")]


@app.command("create")
def create(
    keep: KeepOption = 24,
    keep_for: KeepForOption = "7d",
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
) -> None:
    """Store a snapshot of etcd, check it, and delete old ones. Example: kafscale backup create --keep 48

    If etcd has users, use root.
    """
    from kafscale.storage.backups import Keep, take_and_tidy
    from kafscale.storage.history.witness import WentBack

    kept = Keep(count=keep, age_ms=int(seconds(keep_for) * 1000))

    async def work(cluster: Cluster) -> None:
        now_ms = int(time.time() * 1000)
        try:
            made, gone = await take_and_tidy(cluster.etcd, cluster.store, cluster.keys, kept, now_ms)
        except WentBack as back:
            raise Trouble(f"the snapshot is stored, and no old one was deleted: {back}") from back
        parts, old = counted(len(made.parts), "part"), counted(gone, "old snapshot")
        notice(f"{made.folder}: {made.bytes:,} bytes in {parts}; {old} deleted")

    on_cluster(work, Target(data_dir, namespace, store))


@app.command("list")
def list_(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the snapshots, oldest first."""
    from kafscale.storage.backups import Backup, described, taken_times

    async def work(bucket: Bucket) -> list[Backup]:
        times = await taken_times(bucket.store, bucket.keys)
        return [await described(bucket.store, bucket.keys, time_ms) for time_ms in times]

    found = on_store(work, Target(data_dir, namespace, store))
    rows = [{"time": _text(each.taken_ms), "bytes": each.bytes, "parts": len(each.parts)} for each in found]
    show_rows(COLUMNS, rows, output)


@app.command("get")
def get(
    file: Annotated[Path, typer.Argument(help="File to write, for `etcdutl snapshot restore`.")],
    at: Annotated[
        str | None, typer.Option("--time", help="Time as `backup list` prints it. Default: the newest.")
    ] = None,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
) -> None:
    """Write a snapshot to a file, and check it. Example: kafscale backup get snapshot.db"""
    from kafscale.storage.backups import described, read, taken_times

    async def work(bucket: Bucket) -> None:
        times = await taken_times(bucket.store, bucket.keys)
        wanted = [time_ms for time_ms in times if at in (None, _text(time_ms))]
        if not wanted:
            raise Trouble("there is no such snapshot; `kafscale backup list` lists them")
        backup = await described(bucket.store, bucket.keys, wanted[-1])
        await _write(file, read(bucket.store, backup))
        notice(f"{file}: the snapshot of {_text(backup.taken_ms)}, {backup.bytes} bytes, checksums right")

    on_store(work, Target(data_dir, namespace, store))


async def _write(file: Path, parts: AsyncIterator[bytes]) -> None:
    """All or nothing. Does not replace a file."""
    try:
        target = file.open("xb")
    except OSError as error:
        raise Trouble(f"{file} cannot be written: {error.strerror}") from error
    with target:
        try:
            async for part in parts:
                target.write(part)
        except BaseException:
            await asyncio.to_thread(file.unlink)
            raise


def _text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime(TIME)
