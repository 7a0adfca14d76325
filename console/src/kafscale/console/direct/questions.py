"""A question to etcd and the store, which a process of its own answers: its form, and what it may take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafscale.operations.target import Target

Row = dict[str, Any]
"""A question, or a line of its answer, as JSON."""
Say = Callable[[Row], None]

MEMORY_BYTES: Final = 3 << 29
"""1.5 GiB of address space, which the process sets for itself, as the processor time."""
QUERY_MEMORY_BYTES: Final = 512 << 20
"""Of it, for the rows that DuckDB holds."""
MEMORY_SENTENCE: Final = (
    "this needs more memory than one question may take; ask for less: fewer columns, a shorter time"
)
CPU_S: Final = 30
ROWS_MAX: Final = 10_000
RESULT_BYTES_MAX: Final = 5 << 20

WALL_S: Final = 60.0
LONG_CPU_S: Final = 600
LONG_WALL_S: Final = 900.0
"""Of a check for damage, which reads all bytes of its topics."""
AT_ONCE_MAX: Final = 2
"""Of all sessions; of one session there is one."""
TURN_S: Final = 2.0
"""How long a question waits for its turn: the one before may be ending just now."""
OUTPUT_BYTES_MAX: Final = 2 * RESULT_BYTES_MAX
"""What the console takes from a child: the result and its progress. A child that sends more is broken."""


def target_to_json(target: Target) -> Row:
    """Where etcd and the store are, for a process that opens them."""
    data_dir = None if target.data_dir is None else str(target.data_dir)
    return {"data_dir": data_dir, "namespace": target.namespace, "store": target.store.value}


def target_of_json(found: Row) -> Target:
    from kafscale.operations.target import StoreKind, Target

    data_dir, namespace, store = found["data_dir"], found["namespace"], found["store"]
    return Target(None if data_dir is None else Path(data_dir), namespace, StoreKind(store))
