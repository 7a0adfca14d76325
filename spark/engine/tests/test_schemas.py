"""Headers are as Spark's Kafka connector gives them: null where a record has none, in whatever slice it is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kafscale_spark.schemas import null_if_empty

LISTS = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]), nullable=False)
)
ONE = [{"key": "a", "value": b"1"}]
TWO = [{"key": "b", "value": None}, {"key": "", "value": b""}]


@pytest.mark.parametrize(
    "part", [slice(None), slice(1, 4), slice(2, None), slice(0, 1), slice(1, 2), slice(0, 0)]
)
def test_no_headers_are_null(part: slice) -> None:
    headers = pa.array([[], ONE, [], TWO, []], LISTS)[part]
    found = null_if_empty(headers)
    found.validate(full=True)
    assert found.type == LISTS
    assert found.to_pylist() == [None, ONE, None, TWO, None][part]
