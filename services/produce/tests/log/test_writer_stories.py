"""Seven defects of an earlier system's write path, each as a story that must end well here.

K1 ack after another's failed upload · K2 ack although the metadata write failed · K3 watermark moved
back by a zombie · K4 committed segment overwritten by a zombie · K5 partition object used again
after it was lost · K6 hole after a failed upload, or uncommitted data adopted · K7 epoch answers
that ignore history.
"""

from kafscale.log.heads import EpochStart
from kafscale.produce.log.model import CommitHead, Part, PutFailure, State, StepDownReason
from kafscale.wire.errors import ErrorCode
from writer_desk import Desk
from writer_scripts import at, deliver_all, upload, write
from writer_world import World


def test_k1_nobody_is_acknowledged_after_an_upload_that_failed() -> None:
    desk = Desk()
    desk.append(1)
    desk.append(2)
    desk.upload(only=1)
    desk.do(desk.writer.upload_failed, 0, Part.SEGMENT, PutFailure.REFUSED)
    assert desk.error(1) is desk.error(2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert not desk.pop(CommitHead)


def test_k2_nobody_is_acknowledged_when_the_commit_is_not_known_to_be_applied() -> None:
    world = World()
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    for _ in range(5):
        world.drop(at(world, "commit"))
        world.tick(500)
    assert not world.plain[0].failed
    assert len(world.tokens) == 1
    deliver_all(world)
    assert not world.tokens
    world.heal()


def test_k3_a_zombie_cannot_move_the_log_end() -> None:
    world = World()
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    world.claim(1)
    write(world, 1)
    write(world, 1)
    world.deliver(at(world, "commit", 0), keep=True)
    head = world.head()
    assert head is not None
    assert (head.next, head.epoch) == (2, 2)
    assert world.plain[0].failed == {b"p-0"}
    world.heal()


def test_k4_a_zombie_cannot_overwrite_a_committed_segment() -> None:
    world = World()
    world.claim(0)
    world.send_plain(0)
    world.tick(0)
    world.claim(1)
    write(world, 1)
    committed = dict(world.truth.etags)
    deliver_all(world)
    assert {key: world.s3.objects[key].etag for key in committed} == committed
    assert world.serving[0] is None, "it saw the newer epoch and stepped down"
    world.heal()


def test_k5_a_partition_regained_starts_from_the_log_and_not_from_memory() -> None:
    world = World()
    world.claim(0)
    write(world, 0)
    first = world.serving[0]
    world.claim(1)
    write(world, 1)
    world.claim(0)
    second = world.serving[0]
    assert first is not None
    assert second is not None
    assert second.writer is not first.writer
    assert first.writer.state is State.CLOSED
    write(world, 0)
    assert world.truth.values == [b"p-0", b"p-1", b"p-2"]
    world.heal()


def test_k6_neither_holes_nor_uncommitted_objects_enter_the_log() -> None:
    world = World()
    world.claim(0)
    write(world, 0)
    world.send_plain(0)
    upload(world, 0)
    world.crash(0)
    world.network.clear()
    assert len(world.s3.objects) == 4, "the orphan and its index are there"
    world.claim(1)
    head = world.head()
    assert head is not None
    assert head.next == 1
    write(world, 1)
    assert world.truth.values == [b"p-0", b"p-2"]
    world.heal()


def test_k7_the_history_tells_where_each_epoch_that_wrote_began() -> None:
    world = World()
    world.claim(0)
    write(world, 0)
    world.claim(1)
    world.claim(0)
    write(world, 0)
    write(world, 0)
    world.claim(1)
    write(world, 1)
    head = world.head()
    assert head is not None
    assert head.epochs == (
        EpochStart(epoch=1, start=0),
        EpochStart(epoch=3, start=1),
        EpochStart(epoch=4, start=3),
    )


def test_a_writer_that_is_told_to_stop_resolves_what_etcd_may_have() -> None:
    world = World()
    world.claim(0)
    world.send_plain(0)
    upload(world, 0)
    owner = world.serving[0]
    assert owner is not None
    owner.writer.step_down(StepDownReason.ORDERED, world.now())
    assert len(world.tokens) == 1
    deliver_all(world)
    assert not world.tokens
    assert world.truth.values == [b"p-0"]
    world.heal()
