"""The cluster that a reader's options name: a directory of `kafscale up`, settings as options, or the environment.

Options override KAFSCALE_* variables. Settings are plain values that travel to the tasks; connections do not.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from kafscale.lake.catalog import Lake
from kafscale.runtime.dependencies import connect_etcd, open_object_store
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace
from pydantic import ValidationError

from kafscale_spark.options import BadOption, Request

STOP_TIMEOUT_S: Final = 10.0
_END: Final = object()

T = TypeVar("T")


def settings_of(request: Request) -> ServiceSettings:
    """Raises BadOption."""
    unknown = sorted(set(request.settings) - set(ServiceSettings.model_fields))
    if unknown:
        raise BadOption(f"there is no setting {', '.join(unknown)}")
    chosen: dict[str, Any] = dict(request.settings)
    if request.data_dir is not None:
        chosen = _running(Path(request.data_dir)) | chosen
    try:
        return ServiceSettings(**chosen)
    except ValidationError as wrong:
        raise BadOption("; ".join(f"{each['loc']}: {each['msg']}" for each in wrong.errors())) from wrong


def _running(data_dir: Path) -> dict[str, Any]:
    """The addresses of the directory's cluster, from the file that `kafscale up` writes there."""
    try:
        said = json.loads((data_dir / "run" / "endpoints.json").read_text())
    except FileNotFoundError:
        raise BadOption(f"no cluster runs on {data_dir}: start it with `kafscale up`") from None
    found = {"etcd_endpoints": said["etcd"], "namespace": said["namespace"]}
    if said["object_dir"] and ServiceSettings().object_store != "s3":  # it is empty if the records are in S3
        found |= {"object_store": "dir", "object_dir": said["object_dir"]}
    return found


@asynccontextmanager
async def opened(settings: ServiceSettings) -> AsyncIterator[Lake]:
    """No I/O before the first request; a task that only reads objects never connects to etcd."""
    etcd = connect_etcd(settings)
    try:
        store = open_object_store(settings)
        try:
            keys = Keyspace(settings.namespace)
            yield Lake(etcd, keys, store, History(etcd, keys, store))
        finally:
            await store.close()
    finally:
        await etcd.close()


def pulled(batches: AsyncGenerator[T, None]) -> Iterator[T]:
    """The same for a caller that cannot await. A thread reads ahead while the caller uses the last item.

    A caller that needs no more items closes the iterator, as Spark does for a limit. That closes `batches` first, while
    the event loop still runs: the end of the loop would close each generator on its own, and log that others are open.
    """
    with _loop() as loop:
        try:
            while True:
                batch: Any = asyncio.run_coroutine_threadsafe(_next(batches), loop).result()
                if batch is _END:
                    return
                yield batch
        except GeneratorExit as closed:
            if isinstance(closed.__context__, ConnectionError):
                _hush()
            asyncio.run_coroutine_threadsafe(batches.aclose(), loop).result(STOP_TIMEOUT_S)
            raise


def _hush() -> None:
    """Spark had enough rows and has closed the socket of this process. PySpark's daemon ends the process, and would
    print a traceback about the socket, from which users conclude that the query failed."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of this process


async def _next(batches: AsyncGenerator[T, None]) -> object:
    return await anext(batches, _END)


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a separate thread, which ends with it."""
    runner = asyncio.Runner()
    loop = runner.get_loop()
    thread = threading.Thread(target=loop.run_forever, name="kafscale-reading", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_TIMEOUT_S)
        runner.close()
