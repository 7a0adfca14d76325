"""Pictures of clusters, for the tests of `status` and of its output."""

from __future__ import annotations

from kafscale.operations.services import ROLES
from kafscale.operations.status.picture import NO_ANSWER, READY, Kept, Observed, Picture, Unsettled, paint
from kafscale.storage.membership.records import Instance, InstanceState, Listener

NOW_MS = 1_000_000


def instance(role: str, node_id: int = 1, boot_id: str = "b", revision: int = 1) -> Instance:
    return Instance(
        role=role,
        node_id=node_id,
        boot_id=boot_id,
        address=f"10.0.0.{node_id}:7000",
        http_address=f"10.0.0.{node_id}:8000",
        state=InstanceState.READY,
        started_ms=NOW_MS - 65_000,
        create_revision=revision,
        listeners=(Listener(name="PLAINTEXT", host="kafka", port=9092),) if role == "frontdoor" else (),
    )


WHOLE = Kept(
    namespace="default",
    cluster_id="id",
    etcd=("http://e:2379",),
    instances=tuple(instance(role) for role in ROLES),
    topics=2,
    partitions=9,
    groups=1,
    partition_owners=("1/b",) * 6,
    slot_owners=("1/b",) * 64,
    now_ms=NOW_MS,
)
SILENT = Observed(health=NO_ANSWER, gauges={}, rates={})


def of(kept: Kept, **observed: Observed) -> Picture:
    ready = Observed(health=READY, gauges={"process": 1.0}, rates={"process_total": 0.0})
    everyone = {each.role + each.id: observed.get(each.role, ready) for each in kept.instances}
    return paint(kept, everyone, 1.04)


def with_slices(found: Unsettled) -> Kept:
    return Kept(
        namespace="n",
        cluster_id="id",
        etcd=("e",),
        instances=(),
        topics=1,
        partitions=3,
        groups=0,
        partition_owners=(),
        slot_owners=(),
        unsettled=found,
        now_ms=NOW_MS,
    )
