"""`kafscale lag` on a stopped data directory, in every form that it has."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafscale.cli.__main__ import app
from kafscale.cli.lake.lag_table import bars, duration, rate, show_report, size
from kafscale.lake.catalog import Log
from kafscale.lake.lag.measure import Lag
from kafscale.lake.lag.positions import Position
from kafscale.lake.lag.report import Facts, make_report
from kafscale.lake.lag.sampler import Sampler
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import TopicId
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import Topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from typer.testing import CliRunner, Result

from .stopped import filling

TOPIC = Topic(name="orders", topic_id=TopicId(b"1" * 16), partitions=2)
HOSTILE = "[red]x[/red] \x1b[2J </script>"


async def fill(root: Path) -> None:
    """Two groups on one partition of 20 records, and a sample of them a minute after 1970."""
    async with filling(root) as lake:
        topic = await create_topic(lake.etcd, lake.keys, "orders")
        await LogBuilder(lake.etcd, lake.keys, lake.store, topic).append(
            records(20, timestamp=1_700_000_000_000)
        )
        for group, offset in (("readers", 5), (HOSTILE, 20)):
            key = lake.keys.committed(slot_of(group), group, topic.topic_id, 0)
            await lake.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=1)))
        await Sampler(lake).step(60_000)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    asyncio.run(fill(folder))
    return folder


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["lag", "--data-dir", str(root), *words])


def test_rows_as_json_have_every_field_and_the_worst_first(root: Path) -> None:
    rows = json.loads(run(root, "--output", "json", "--top", "2").stdout)
    assert [(row["group"], row["records"], row["status"]) for row in rows] == [
        ("readers", 15, "UNKNOWN"),
        (HOSTILE, 0, "OK"),
    ]
    assert {"time_ms", "eta_ms", "expires_in_ms", "at_risk", "consume_per_s", "member"} < set(rows[0])


def test_groups_and_topics_are_rows_too(root: Path) -> None:
    (row,) = json.loads(run(root, "-o", "json", "--by", "group", "--group", "readers").stdout)
    assert (row["records"], row["life"], row["laggards"]) == (15, "dead", ["orders/0"])
    found = run(root, "-o", "csv", "--by", "topic").stdout
    (topic,) = csv.DictReader(io.StringIO(found))
    assert (topic["topic"], topic["groups"], topic["slowest_group"]) == ("orders", "2", "readers")


@pytest.mark.parametrize("by", ["partition", "group", "topic"])
def test_a_person_sees_a_table(root: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = run(root, "--by", by)
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    assert ("orders" if by != "group" else HOSTILE.replace("\x1b", "\ufffd")) in done.stdout


def test_a_group_that_does_not_exist_is_an_error(root: Path) -> None:
    for words in ((), ("-o", "json"), ("--by", "group", "--group", "readers")):
        done = run(root, "--group", "nobody", *words)
        assert (done.exit_code, done.stdout) == (1, "")
        assert (
            done.stderr == "kafscale: group 'nobody' does not exist; `kafscale groups list` shows what does\n"
        )


def test_a_partition_without_a_commit_is_named_in_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lag = Lag(
        group="g", topic="orders", partition=1, committed=None, log_start=0, log_end=5, records=5, lost=0, bytes=9,
        stable_end=3, stable_records=3,
    )  # fmt: skip
    position = Position(group="g", topic="orders", partition=1)
    facts = Facts(
        cluster="c", at_ms=1, logs=[Log(topic=TOPIC, partition=1, end=5)], positions=[position], lags=[lag]
    )
    show_report(make_report(facts), "partition", None, None)
    _, row, *_ = capsys.readouterr().out.splitlines()
    assert row.split()[:8] == ["g", "orders", "1", "no", "commit", "5", "3", "3"]


@pytest.mark.parametrize(
    ("expires_in_ms", "by_size_ms", "said"),
    [(0, None, "any time"), (90_000, None, "1m 30s"), (90_000, 0, "any time")],
)
@pytest.mark.parametrize("by", ["partition", "group"])
def test_records_past_their_retention_may_be_deleted_at_any_time(
    by: str,
    expires_in_ms: int,
    by_size_ms: int | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not in 0.0 s: retention runs every hour."""
    monkeypatch.setenv("COLUMNS", "200")
    lag = Lag(
        group="g", topic="orders", partition=1, committed=2, log_start=0, log_end=5, records=3, lost=0, bytes=9,
        stable_end=5, stable_records=3, expires_in_ms=expires_in_ms, room_bytes=by_size_ms,
    )  # fmt: skip
    position = Position(group="g", topic="orders", partition=1, offset=CommittedOffset(offset=2, commit_ms=1))
    facts = Facts(
        cluster="c", at_ms=1, logs=[Log(topic=TOPIC, partition=1, end=5)], positions=[position], lags=[lag]
    )
    show_report(make_report(facts), by, None, None)
    heading, row, *_ = capsys.readouterr().out.splitlines()
    end = heading.index("expires") + len("expires")
    assert row[:end].endswith(f" {said}")


@pytest.mark.parametrize(
    ("by", "chosen", "said"),
    [
        ("group", None, "no group has a member or a committed offset"),
        ("partition", {"b", "a"}, "no committed offset and no subscribed topic: a, b"),
        ("topic", None, "there are no topics"),
    ],
)
def test_an_empty_table_says_what_is_not_there(
    by: str, chosen: set[str] | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = make_report(Facts(cluster="c", at_ms=1, logs=[], positions=[], lags=[]))
    show_report(nothing, by, None, chosen)
    assert capsys.readouterr().out == f"{said}\n"


def test_files_for_machines(root: Path, tmp_path: Path) -> None:
    parquet, text, page = tmp_path / "lag.parquet", tmp_path / "lag.prom", tmp_path / "lag.html"
    done = run(root, "-o", "json", "--parquet", str(parquet), "--prometheus", str(text), "--html", str(page))
    assert done.exit_code == 0, done.output
    assert "readers" in page.read_text(encoding="utf-8")
    assert pq.read_table(parquet)["records"].to_pylist() == [0, 15]
    assert (
        'kafka_consumergroup_group_sum_lag{cluster_name="default",group="readers"} 15.0' in text.read_text()
    )
    assert [line for line in done.stderr.splitlines() if line.startswith("wrote ")] == [
        f"wrote {parquet}",
        f"wrote {text}",
        f"wrote {page}; open it in a browser",
    ]
    assert {file.name for file in tmp_path.iterdir()} == {"lag.parquet", "lag.prom", "lag.html"}
    assert run(root, "--prometheus", "-").stdout.splitlines()[0] == text.read_text().splitlines()[0]


def test_a_checkpoint_is_a_group(root: Path, tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "metadata").write_text('{"id":"query-1"}')
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"orders:0":12,"gone:0":3}')
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    rows = json.loads(run(root, "-o", "json", "--checkpoint", str(tmp_path), "--group", "query-1").stdout)
    assert [(row["group"], row["topic"], row["records"]) for row in rows] == [("query-1", "orders", 8)]


def test_trouble_is_a_sentence(root: Path, tmp_path: Path) -> None:
    done = run(root, "--checkpoint", str(tmp_path / "none"))
    assert (done.exit_code, "is no checkpoint" in done.output) == (1, True)
    done = run(root, "--parquet", str(tmp_path / "no" / "such"))
    assert done.exit_code == 1
    assert done.stderr == f"kafscale: {tmp_path / 'no' / 'such'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (None, ""),
        (40, "0.0s"),
        (9_940, "9.9s"),
        (65_000, "1m 5s"),
        (3_600_000, "1h"),
        (93_600_000, "1d 2h"),
        (86_460_000, "1d"),
        (-65_000, "-1m 5s"),
    ],
)
def test_durations_have_two_units_at_most(time_ms: int | None, text: str) -> None:
    assert duration(time_ms) == text


def test_sizes_and_rates_are_short() -> None:
    assert [size(count) for count in (0, 999, 1_500, 123_456, 7 * 10**9)] == [
        "0",
        "999",
        "1.5K",
        "123K",
        "7.0G",
    ]
    assert [rate(value) for value in (None, 0.25, 12_345.6)] == ["", "0.2", "12,346"]


def test_bars_show_the_shape_and_gaps() -> None:
    assert bars([-1, 0, 4, 8]) == " ▁▄█"
    assert bars([0, 0]) == "▁▁"
    assert bars([-1, -1]) == bars([]) == ""
    assert len(bars(list(range(97)))) == 16
    assert bars([9] + [0] * 30) == "█" + "▁" * 15, "the oldest value is there too"
