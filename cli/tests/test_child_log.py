"""What the console of `kafscale up` says about a child: one sentence, never a line of JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafscale.cli.child_log import WORDS_MAX, grouped, last_trouble, last_words

READY = {"event": "ready", "level": "info"}
NO_KEYS = {
    "need": "bucket x",
    "why": "no S3 credentials",
    "do": "create the bucket",
    "event": "dependency unavailable",
    "level": "warning",
}
DIED = {
    "event": "process failed",
    "level": "error",
    "exception": "  + Exception Group Traceback\n    | ValueError: bad\n    +------------------------------------\n",
}
OF_ETCD = {"level": "fatal", "msg": "discovery failed", "error": "no space left on device"}


def log(folder: Path, *lines: object) -> Path:
    path = folder / "x.log"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("lines", "trouble"),
    [
        ([], None),
        ([READY], None),
        ([NO_KEYS, READY], "dependency unavailable: bucket x: no S3 credentials; create the bucket"),
        ([NO_KEYS, DIED], "process failed: ValueError: bad"),
        ([OF_ETCD], "discovery failed: no space left on device"),
        (["[1]", "not JSON"], None),
    ],
)
def test_the_newest_warning_is_a_sentence(tmp_path: Path, lines: list[object], trouble: str | None) -> None:
    assert last_trouble(log(tmp_path, *lines)) == trouble


def test_an_unmet_need_is_found_behind_other_warnings(tmp_path: Path) -> None:
    path = log(tmp_path, NO_KEYS, DIED)
    assert (
        last_trouble(path, unmet=True)
        == "dependency unavailable: bucket x: no S3 credentials; create the bucket"
    )
    assert last_trouble(log(tmp_path, DIED), unmet=True) is None


def test_a_log_that_does_not_exist_has_no_trouble(tmp_path: Path) -> None:
    assert last_trouble(tmp_path / "none.log") is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([DIED, READY], "process failed: ValueError: bad; its log is {}"),
        ([READY, "Segmentation fault", ""], "Segmentation fault; its log is {}"),
        ([NO_KEYS, "KAFSCALE_X: 'y' is no number"], "KAFSCALE_X: 'y' is no number; its log is {}"),
        ([OF_ETCD, "panic", "\t/etcd.go:7"], "discovery failed: no space left on device; its log is {}"),
        (["KAFSCALE_X: 'y' is no number", DIED], "process failed: ValueError: bad; its log is {}"),
        ([READY], "its log {} has no warning"),
    ],
)
def test_last_words_name_the_reason_and_the_log(tmp_path: Path, lines: list[object], why: str) -> None:
    path = log(tmp_path, *lines)
    assert last_words(path) == why.format(path)


def test_words_are_bounded(tmp_path: Path) -> None:
    assert len(last_trouble(log(tmp_path, NO_KEYS | {"why": "x" * 10_000})) or "") == WORDS_MAX


def test_the_same_trouble_is_said_once_for_all_that_have_it() -> None:
    assert list(grouped([("produce-1", "no bucket"), ("admin-1", "starting"), ("fetch-1", "no bucket")])) == [
        "produce-1, fetch-1: no bucket",
        "admin-1: starting",
    ]
