"""The batch that has an offset, and the object in which it is stored, in the child process."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from kafscale.lake.batches import scan_batches
from kafscale.lake.catalog import Lake, Log, read_lake

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.log.heads import Seg
    from kafscale.log.places import Place
    from kafscale.operations.clusters import Cluster

COLUMNS: Final = (
    "base_offset",
    "last_offset",
    "records",
    "bytes",
    "codec",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
    "is_transactional",
)


async def answer_batch(cluster: Cluster, question: Row, say: Say) -> None:
    """`topic`, `partition`, `offset`. Says {batch}: COLUMNS as in the SQL table `batches`, and `object`, `object_kind`
    (segment or bundle), `object_at` (where the segment begins in it) and `object_bytes` (of the segment). It is null if
    no batch has the offset."""
    lake = Lake(cluster.etcd, cluster.keys, cluster.store)
    logs = await read_lake(lake, [question["topic"]])
    found = [
        await _batch(lake, log, question["offset"]) for log in logs if log.partition == question["partition"]
    ]
    say({"batch": found[0] if found else None})


async def _batch(lake: Lake, log: Log, offset: int) -> Row | None:
    for seg in log.between(offset, offset + 1):
        async with aclosing(scan_batches(lake, log, [seg])) as found:
            async for rows in found:
                for row in rows.select(COLUMNS).to_pylist():
                    if row["base_offset"] <= offset <= row["last_offset"]:
                        return dict(row) | _object(lake.place_of(log, seg), seg)
    return None


def _object(place: Place, seg: Seg) -> Row:
    return {
        "object": place.key,
        "object_kind": "bundle" if seg.is_slice else "segment",
        "object_at": place.start,
        "object_bytes": seg.size,
    }
