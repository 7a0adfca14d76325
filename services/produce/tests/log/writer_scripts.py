"""Scripted interleavings: the shortest stories in which each mistake would hurt.

Every script runs to its end in a sound world. With its flaw planted, the truth stops it.
"""

from __future__ import annotations

from collections.abc import Callable

from writer_clients import ensure
from writer_world import World

Script = Callable[[World], None]


def at(world: World, what: str, instance: int | None = None) -> int:
    """Where the oldest request of this kind waits."""
    for position, request in enumerate(world.network):
        owner = request.owner
        if request.what.startswith(what) and (instance is None or (owner and owner.instance == instance)):
            return position
    raise AssertionError(f"no {what} of {instance} among {[r.what for r in world.network]}")


def upload(world: World, instance: int) -> None:
    """Deliver what this instance has for S3, and what follows from it, until a commit is on its way."""
    world.tick(0)
    for _ in range(20):
        waiting = [r for r in world.network if r.owner and r.owner.instance == instance]
        puts = [r for r in waiting if not r.what.startswith("commit")]
        if not puts:
            return
        world.deliver(world.network.index(puts[0]))


def write(world: World, instance: int) -> None:
    """One record through all steps."""
    world.send_plain(instance)
    upload(world, instance)
    world.deliver(at(world, "commit", instance))


def deliver_all(world: World) -> None:
    while world.network:
        world.deliver(0)


def zombie_put_arrives_after_the_successor_committed(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    world.tick(0)
    world.claim(1)
    write(world, 1)
    deliver_all(world)
    world.heal()


def zombie_commit_arrives_after_the_claim(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.claim(1)
    world.deliver(at(world, "commit", 0))
    world.heal()


def commit_is_applied_and_its_answer_lost(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.deliver(at(world, "commit"), lose_answer=True)
    deliver_all(world)
    ensure(world.plain[0].failed == set(), "a committed record was called failed")
    world.heal()


def orphan_stands_where_the_successor_writes(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.crash(0)
    world.claim(1)
    write(world, 1)
    world.heal()


def upload_ends_and_the_writer_dies(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.crash(0)
    world.network.clear()
    world.claim(1)
    world.heal()


def writer_of_a_dead_topic_wakes_up(world: World) -> None:
    world.claim(0)
    write(world, 0)
    world.send_plain(0)
    world.tick(0)
    world.recreate_topic()
    while any(request.what.startswith("delete") for request in world.network):
        world.deliver(at(world, "delete"))
    world.claim(1)
    write(world, 1)
    write(world, 1)
    deliver_all(world)
    world.heal()


def delete_of_a_dead_topic_arrives_late(world: World) -> None:
    world.claim(0)
    write(world, 0)
    world.recreate_topic()
    world.claim(1)
    write(world, 1)
    deliver_all(world)
    world.heal()


def orphan_is_deleted_late(world: World) -> None:
    """Both objects, so that it holds for indexes as well, whose entries are equal in all epochs."""
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.claim(1)
    world.janitor(0)
    world.janitor(1)
    write(world, 1)
    deliver_all(world)
    world.heal()


def zombie_sees_a_gap_that_is_none(world: World) -> None:
    world.claim(0)
    for instance in (0, 1):
        if instance:
            world.claim(1)
        world.send_idempotent(instance)
        upload(world, instance)
        world.deliver(at(world, "commit", instance))
    world.send_idempotent(0)
    deliver_all(world)
    world.heal()


def commit_is_applied_unheard_and_then_fenced(world: World) -> None:
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.deliver(at(world, "commit", 0), lose_answer=True)
    world.claim(1)
    write(world, 1)
    deliver_all(world)
    world.heal()


SCRIPTS: dict[str, Script] = {
    "UNCOND_PUT": zombie_put_arrives_after_the_successor_committed,
    "NO_FENCE": zombie_commit_arrives_after_the_claim,
    "AMBIG_FAIL": commit_is_applied_and_its_answer_lost,
    "NO_ETAG": orphan_stands_where_the_successor_writes,
    "OVERWRITE_ANY": zombie_put_arrives_after_the_successor_committed,
    "ACK_UPLOADED": upload_ends_and_the_writer_dies,
    "EPOCH_RESTARTS": writer_of_a_dead_topic_wakes_up,
    "BLIND_412_FAIL": orphan_stands_where_the_successor_writes,
    "TOPIC_DELETE_UNCOND": delete_of_a_dead_topic_arrives_late,
    "GC_UNCOND": orphan_is_deleted_late,
    "UNSTAMPED_INDEX": orphan_is_deleted_late,
    "ZOMBIE_GAP": zombie_sees_a_gap_that_is_none,
    "NO_EVIDENCE": commit_is_applied_unheard_and_then_fenced,
}
