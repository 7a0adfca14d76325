"""Whether bytes are the object that a commit record names. Pure."""

from __future__ import annotations

from kafscale.log.heads import Seg
from kafscale.log.segment import FOOTER_SIZE, Buffer, Fault, SegmentError, VerifiedSegment, verify_segment


def verify_committed(seg: Seg, data: Buffer, *, batches: bool = True) -> VerifiedSegment:
    """Raises SegmentError unless `data` is whole, intact, and the very segment or slice that was committed.

    A store may ignore an etag condition, so the commit record's checksum and extent are always checked. `batches`: as
    `verify_segment`.
    """
    if len(data) != seg.size:
        raise SegmentError(Fault.LENGTH, position=0, expected=seg.size, found=len(data))
    verified = verify_segment(data, batches=batches)
    footer = verified.footer
    if footer.crc32c != seg.crc32c:
        raise SegmentError(
            Fault.CHECKSUM, position=seg.size - FOOTER_SIZE, expected=seg.crc32c, found=footer.crc32c
        )
    extent = (verified.header.base_offset, footer.last_offset)
    if extent != (seg.base, seg.last):
        raise SegmentError(Fault.OFFSET, position=8, expected=(seg.base, seg.last), found=extent)
    return verified
