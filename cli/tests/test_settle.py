"""What `kafscale settle` prints."""

from __future__ import annotations

from kafscale.cli.settle import COLUMNS
from kafscale.operations.settle import Left


def test_what_is_left_is_printed_with_all_its_fields() -> None:
    assert set(COLUMNS) == set(Left.__slots__)
