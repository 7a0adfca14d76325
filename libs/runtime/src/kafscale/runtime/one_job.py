"""A process that does one job and ends.

It handles SIGTERM because it may be the first process of a container: Linux ignores a signal to that process unless the
process handles it, and Kubernetes would kill the container only after the pod's whole grace period.
"""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from kafscale.runtime.launch import STOPPED_EXIT_CODE


def run_job(job: Coroutine[Any, Any, int]) -> int:
    """The exit code of the job. SIGTERM cancels the job."""

    async def run() -> int:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await job

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        return STOPPED_EXIT_CODE
