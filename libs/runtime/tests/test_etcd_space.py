"""What groups and topics may still put into etcd, so that heads and leases keep a share of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest
from kafscale.runtime.etcd_space import KEY_COST_BYTES, EtcdSpace, Use
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected, EtcdStatus, EtcdUnknown, UnknownKind

MIB = 1 << 20
QUOTA = 100 * MIB


def status(
    used_mib: int, *, file_mib: int = 0, quota_bytes: int = 0, errors: tuple[str, ...] = ()
) -> EtcdStatus:
    return EtcdStatus(
        version="3.4.0",
        db_bytes=(file_mib or used_mib) * MIB,
        db_bytes_in_use=used_mib * MIB,
        quota_bytes=quota_bytes,
        is_leader=True,
        errors=errors,
    )


class Etcd:
    def __init__(self) -> None:
        self.answers: list[EtcdStatus | Exception] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def status(self) -> EtcdStatus:
        self.meanwhile()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def space(*used_mib: int) -> EtcdSpace:
    made = EtcdSpace(Etcd(), QUOTA)  # type: ignore[arg-type]
    for used in used_mib:
        made.looked(status(used))
    return made


@pytest.mark.parametrize(
    ("used_mib", "new", "known"),
    [
        ((0,), True, True),
        ((59,), True, True),
        ((60,), False, True),
        ((74,), False, True),
        ((75,), False, False),
    ],
)
def test_past_its_share_what_is_new_is_refused_and_then_what_known_groups_write(
    used_mib: tuple[int], new: bool, known: bool
) -> None:
    made = space(*used_mib)
    assert (made.admits(Use.NEW, 1), made.admits(Use.KNOWN, 1)) == (new, known)
    assert made.refusals == (not new) + (not known)


def test_what_was_refused_begins_again_lower_so_that_it_does_not_flutter() -> None:
    assert not space(60, 56).admits(Use.NEW, 1)
    assert space(60, 54).admits(Use.NEW, 1)
    assert space(56).admits(Use.NEW, 1), "one that was never refused"
    assert not space(76, 71).admits(Use.KNOWN, 1)
    assert space(76, 69).admits(Use.KNOWN, 1)


def test_free_pages_of_the_file_are_room() -> None:
    made = space()
    made.looked(status(10, file_mib=95))
    assert made.admits(Use.NEW, 1)


def test_what_was_let_in_since_the_last_look_counts() -> None:
    made = space(40)
    admitted = 0
    while made.admits(Use.NEW, MIB):
        admitted += 1
    assert admitted == 9, "20 MiB are left, and each MiB may take two of the file"
    assert not made.admits(Use.NEW, MIB)
    many = space(40)
    assert not many.admits(Use.NEW, 0, keys=20 * MIB // KEY_COST_BYTES + 1), (
        "keys without values cost as well"
    )


async def test_a_look_takes_off_what_it_has_seen_and_nothing_that_came_meanwhile() -> None:
    etcd = Etcd()
    made = EtcdSpace(etcd, QUOTA)  # type: ignore[arg-type]
    assert made.admits(Use.NEW, 20 * MIB)
    etcd.answers = [EtcdUnknown(UnknownKind.TIMEOUT, "away"), status(20), status(40)]
    await made.look()
    assert not made.admits(Use.NEW, 10 * MIB), "etcd did not answer: what was let in counts on"
    await made.look()
    assert made.admits(Use.NEW, 10 * MIB)
    await made.look()
    assert made.admits(Use.NEW, 9 * MIB)
    assert not made.admits(Use.NEW, 2 * MIB)
    etcd.answers = [status(20), status(20)]
    await made.look()
    etcd.meanwhile = lambda: made.admits(Use.KNOWN, 15 * MIB)
    await made.look()
    assert not made.admits(Use.NEW, 10 * MIB), "20 MiB of the file and 30 that came during the look"


async def test_etcds_own_word_for_its_quota_is_taken() -> None:
    made = space()
    made.looked(status(100, quota_bytes=1000 * MIB))
    assert made.quota_bytes == 1000 * MIB
    assert made.admits(Use.NEW, 1)
    made.looked(status(100))
    assert made.quota_bytes == 1000 * MIB


def test_an_etcd_that_is_full_is_given_nothing_more() -> None:
    made = space()
    made.looked(status(5, errors=("memberID:8 alarm:NOSPACE ",)))
    assert made.is_full
    assert not made.admits(Use.KNOWN, 1)
    made.looked(status(5))
    assert made.admits(Use.KNOWN, 1)


async def test_a_real_etcd_is_read_again_and_again(etcd: EtcdClient) -> None:
    made = EtcdSpace(etcd, 1 << 40)
    looking = asyncio.create_task(made.run())
    async with asyncio.timeout(60):
        while made.used_bytes == 0:
            await etcd.status()
        first, keys = made.used_bytes, 0
        while made.used_bytes < first + MIB:  # what tests before this one have deleted may leave meanwhile
            assert not looking.done()
            await etcd.put(b"space/%d" % keys, bytes(MIB // 16))
            keys += 1
    looking.cancel()
    await etcd.delete(b"space/", range_end=b"space0")


async def test_an_etcd_that_shows_its_status_to_root_alone_is_no_reason_to_refuse() -> None:
    """Nothing would ever take back what was counted."""
    etcd = Etcd()
    made = EtcdSpace(etcd, QUOTA)  # type: ignore[arg-type]
    etcd.answers = [EtcdRejected(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")]
    await made.look()
    assert all(made.admits(Use.NEW, QUOTA) for _ in range(3))
    etcd.answers = [status(60)]
    await made.look()
    assert not made.admits(Use.NEW, 1)
    etcd.answers = [EtcdUnknown(UnknownKind.UNAVAILABLE, "away")]
    await made.look()
    assert not made.admits(Use.NEW, 1), "an etcd that is away is not one that refuses"
