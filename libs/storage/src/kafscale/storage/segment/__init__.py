"""The segment format: one `.kfs` of batches and one `.index` per flush of a partition. Pure."""

from kafscale.storage.segment.build import BatchInfo, Segment, build_segment, index_entries
from kafscale.storage.segment.index import IndexEntry, SegmentIndex, encode_index, find_position, parse_index
from kafscale.storage.segment.layout import (
    BATCH_HEADER_SIZE,
    FOOTER_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_INTERVAL,
    Fault,
    SegmentError,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
)
from kafscale.storage.segment.read import (
    BatchSpan,
    VerifiedSegment,
    read_batch_span,
    verify_segment,
    walk_batches,
)

__all__ = [
    "BATCH_HEADER_SIZE",
    "FOOTER_SIZE",
    "HEADER_SIZE",
    "INDEX_ENTRY_SIZE",
    "INDEX_HEADER_SIZE",
    "INDEX_INTERVAL",
    "BatchInfo",
    "BatchSpan",
    "Fault",
    "IndexEntry",
    "Segment",
    "SegmentError",
    "SegmentFooter",
    "SegmentHeader",
    "SegmentIndex",
    "VerifiedSegment",
    "build_segment",
    "encode_index",
    "find_position",
    "index_entries",
    "parse_footer",
    "parse_header",
    "parse_index",
    "read_batch_span",
    "verify_segment",
    "walk_batches",
]
