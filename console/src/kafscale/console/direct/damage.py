"""`kafscale fsck` of some topics, in the child process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from kafscale.console.direct.storage import topic_names
from kafscale.operations.fsck.run import Fsck

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster

SAY_EVERY_S: Final = 0.2
SHOWN_MAX: Final = 1_000
"""Of problems, and of orphans. The rest is counted."""


async def answer_damage(cluster: Cluster, question: Row, say: Say) -> None:
    """`topics`, or None for everything; `seen`: the topics that the login sees. Findings name topics and objects, so
    everything is only for a login that sees all topics. Says {at, done, total}, {problems}, {orphans}, {end}."""
    said = 0.0

    def progress(name: str, done: int, total: int) -> None:
        nonlocal said
        if time.monotonic() - said >= SAY_EVERY_S:
            said = time.monotonic()
            say({"at": name, "done": done, "total": total})

    names, seen = question["topics"], frozenset(question["seen"])
    if names is None and not seen.issuperset((await topic_names(cluster)).values()):
        names = sorted(seen)
    verdict = await Fsck(cluster.etcd, cluster.keys, cluster.store, progress, names).run()
    say({"problems": [{"where": each.where, "what": each.what} for each in verdict.problems[:SHOWN_MAX]]})
    say({"orphans": verdict.orphans[:SHOWN_MAX]})
    say(
        {
            "end": {
                "clean": verdict.clean,
                "problems": len(verdict.problems),
                "topics": verdict.topics,
                "partitions": verdict.partitions,
                "segments": verdict.segments,
                "records": verdict.records,
                "bytes": verdict.bytes,
                "orphans": len(verdict.orphans),
                "deleted": verdict.deleted,
                "deleted_stored": verdict.deleted_stored,
                "all": names is None,
            }
        }
    )
