"""The instances and what they answer, as `kafscale status` sees them, in the child process."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from kafscale.console.direct.questions import target_of_json
from kafscale.operations.clusters import chosen_dir
from kafscale.operations.datadir import full_disk
from kafscale.operations.status.gather import labelled, look, metrics_texts, readable, totals
from kafscale.operations.status.picture import newest
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.membership.records import decode_live

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster

INTERVAL_S: Final = 1.0


async def answer_health(cluster: Cluster, question: Row, say: Say) -> None:
    """Says {picture}, and {etcd_version} if etcd says it."""
    disk = full_disk(chosen_dir(target_of_json(question["target"]).data_dir))
    etcd, keys = cluster.etcd, cluster.keys
    picture = asdict(await look(etcd, keys, cluster.settings.etcd_endpoints, INTERVAL_S, disk))
    live = await etcd.prefix(keys.live_prefix())
    instances = newest(readable(live.kvs, lambda kv: decode_live(kv, keys)))
    texts = await metrics_texts(instances)
    more = {}
    for each in instances:
        text = texts[each.role + each.id]
        found = totals(text)
        more[each.role, each.node_id] = {
            "version": next(iter(labelled(text, f"kafscale_{each.role}_build_info", "version")), None),
            "memory_bytes": found.get("process_resident_memory_bytes"),
            "loop_lag_s": found.get(f"kafscale_{each.role}_loop_lag_seconds"),
        }
    unknown = {"version": None, "memory_bytes": None, "loop_lag_s": None}
    rows = [
        row
        | more.get((row["service"], row["node"]), unknown)
        | {"metrics_url": f"http://{row['metrics']}/metrics"}
        for row in picture["instances"]
    ]
    try:
        version = (await etcd.status()).version
    except EtcdError:
        version = None  # some versions of etcd give their status to root alone
    say({"picture": picture | {"instances": rows, "etcd_version": version}})
