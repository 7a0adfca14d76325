"""Stories that mostly wait: several run at once, and each is the result of its own test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest


def is_selected(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether this run has the test of the requesting file whose parameter has this id."""
    mine = [item for item in request.session.items if item.path == request.path]
    return any(item.name.endswith(f"[{name}]") for item in mine)


@contextmanager
def told_at_once(
    tellers: Mapping[str, Callable[[], None]], at_once: int
) -> Iterator[dict[str, Future[None]]]:
    """They start in the order of the mapping, which is that of the tests, so none waits for a later one."""
    with ThreadPoolExecutor(at_once) as threads:
        yield {name: threads.submit(tell) for name, tell in tellers.items()}
        threads.shutdown(cancel_futures=True)
