"""A search reads newest first, finds what a plain list finds, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.direct import search as searching
from kafscale.console.direct import search_plan
from kafscale.console.direct.search import answer_search, condition, refusal
from kafscale.console.direct.search_plan import Chunk, chunks
from kafscale.console.records import cursor
from kafscale.lake.catalog import Log
from kafscale.log.heads import Seg
from kafscale.operations.clusters import Cluster
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic, TopicState
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional

from .asked import SECRET, Row, cluster, here

__all__ = ["cluster"]

TOPIC = Topic(name="orders", topic_id=TopicId(bytes(16)), partitions=4, state=TopicState.ACTIVE)


def seg(base: int, count: int, size: int, newest_ms: int) -> Seg:
    return Seg(
        base=base,
        last_delta=count - 1,
        size=size,
        etag="",
        crc32c=0,
        index_size=0,
        index_etag="",
        epoch=0,
        min_ts=0,
        max_ts=newest_ms,
        records=count,
        batches=1,
        created_ms=0,
    )


@st.composite
def logs(draw: st.DrawFn) -> list[Log]:
    found = []
    for partition in range(draw(st.integers(1, 3))):
        segments, base = [], 0
        for _ in range(draw(st.integers(0, 8))):
            count = draw(st.integers(1, 5))
            segments.append(seg(base, count, draw(st.integers(1, 60)), draw(st.integers(-1, 20))))
            base += count
        start = draw(st.integers(0, base))
        kept = tuple(each for each in segments if each.end > start)
        found.append(Log(topic=TOPIC, partition=partition, start=start, end=base, segments=kept))
    return found


def offsets(found: Sequence[Chunk]) -> list[tuple[int, int]]:
    return [
        (chunk.log.partition, offset) for chunk in found for offset in reversed(range(chunk.start, chunk.end))
    ]


@given(logs(), st.integers(0, 20), st.one_of(st.none(), st.integers(0, 20)))
def test_every_offset_is_in_one_chunk_and_a_search_goes_on_at_any_of_them(
    some: list[Log], stop: int, since_ms: int | None
) -> None:
    whole = list(chunks(some, {}, since_ms, chunk_bytes=64))
    every = {(log.partition, offset) for log in some for offset in range(log.start, log.end)}
    assert sorted(offsets(whole)) == sorted(every)
    for log in some:
        mine = [chunk for chunk in whole if chunk.log.partition == log.partition]
        ends = [log.end, *(chunk.start for chunk in mine)]
        assert [chunk.end for chunk in mine] == ends[: len(mine)]
        assert ends[-1] == log.start or not log.segments
    first = whole[:stop]
    cut = {log.partition: log.end for log in some} | {chunk.log.partition: chunk.start for chunk in first}
    rest = list(chunks(some, cut, since_ms, chunk_bytes=64))
    assert sorted(offsets(first) + offsets(rest)) == sorted(every)
    for chunk in whole:
        assert chunk.skipped is (
            since_ms is not None and all(each.max_ts < since_ms for each in chunk.log.segments)
        )


@given(logs())
def test_of_the_partitions_the_newest_chunk_comes_first(some: list[Log]) -> None:
    left = {log.partition: list(chunks([log], {}, None, chunk_bytes=64)) for log in some}
    for chunk in chunks(some, {}, None, chunk_bytes=64):
        assert chunk.newest_ms == max(mine[0].newest_ms for mine in left.values() if mine)
        assert left[chunk.log.partition].pop(0) == chunk


def question(**more: Any) -> Row:
    empty: Row = {"where": "", "text": "", "partition": None, "since_ms": None, "until_ms": None, "cut": {}}
    return {"topic": "orders", "isolation": "committed", **empty, **more}


def found(lines: list[Row]) -> list[int]:
    return [each["offset"] for line in lines for each in line.get("hits", [])]


async def test_a_text_is_found_newest_first_and_it_says_that_all_was_read(cluster: Cluster) -> None:
    lines = await here(answer_search, cluster, question(text="ORDER-1-7"))
    assert found(lines) == [*range(179, 169, -1), 107]
    assert lines[-1] | {"cursor": ""} == {
        "read": 300,
        "records": 300,
        "found": 11,
        "cursor": "",
        "at_ms": None,
        "end": "end",
    }
    assert cursor.from_text(lines[-1]["cursor"]) == {0: 0}


async def test_a_search_ends_at_its_hits_and_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "HITS_MAX", 7)
    every: list[int] = []
    cut: dict[str, int] = {}
    for _ in range(100):
        lines = await here(answer_search, cluster, question(where='"offset" % 10 = 3', cut=cut))
        every += found(lines)
        cut = {str(each): offset for each, offset in cursor.from_text(lines[-1]["cursor"]).items()}
        if lines[-1]["end"] == "end":
            break
    assert every == list(range(293, 0, -10))


async def test_a_time_skips_what_is_older(cluster: Cluster) -> None:
    lines = await here(answer_search, cluster, question(where="true", since_ms=20_000, until_ms=20_003))
    assert found(lines) == [202, 201, 200]
    assert lines[-1]["read"] == 300


@pytest.mark.parametrize("segments", [1, 100])
async def test_what_is_open_or_aborted_is_no_hit_or_is_marked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    """Also if the marker of the abort is in another chunk."""
    monkeypatch.setattr(search_plan, "CHUNK_SEGMENTS", segments)
    paid = LogBuilder(
        cluster.etcd, cluster.keys, cluster.store, await create_topic(cluster.etcd, cluster.keys, "paid")
    )
    for batch in (
        transactional(7, records(2, label="aborted")),  # offsets 0 and 1
        transactional(8, records(1, label="committed")),
        marker(7, commit=False),
        marker(8, commit=True),
        transactional(9, records(1, label="open")),  # 5
    ):
        await paid.append_raw([batch])
    await paid.append(records(1, label="behind"))
    asked = question(topic="paid", where="true")
    assert found(await here(answer_search, cluster, asked)) == [2]
    lines = await here(answer_search, cluster, asked | {"isolation": "uncommitted"})
    hits = [each for line in lines for each in line.get("hits", [])]
    assert [(each["offset"], each["state"]) for each in hits] == [
        (6, "open"),
        (5, "open"),
        (2, None),
        (1, "aborted"),
        (0, "aborted"),
    ]


async def test_a_record_for_which_the_condition_fails_is_no_hit(cluster: Cluster) -> None:
    lines = await here(answer_search, cluster, question(where="value ->> '$.country' = 'NL'"))
    assert (found(lines), lines[-1]["end"]) == ([], "end")
    assert found(await here(answer_search, cluster, question(where="key_text = 'k99' -- the last"))) == [
        299,
        199,
        99,
    ]


@pytest.mark.parametrize(
    "where",
    [
        "no such column",
        "true) or (select count(*) from read_text('/etc/passwd')) > 0 --",
        "1 = 1; select 1",
    ],
)
async def test_a_condition_that_is_none_is_a_sentence(cluster: Cluster, where: str) -> None:
    lines = await here(answer_search, cluster, question(where=where))
    assert lines[-1]["error"] == "bad_query"


@pytest.mark.parametrize(
    ("where", "what", "field"),
    [
        ("customer = 'c-17'", "there is no column customer.", "customer"),
        ("value.country = 'NL'", "Cannot extract field 'country' from", "country"),
        ('key_text = "k1"', "there is no column k1.\nText is in single quotes: 'k1'.", "customer"),
        (
            "offset > 5",
            'syntax error at or near ">".\nAs the name of a column, "offset" has to stand in double quotes.',
            "customer",
        ),
        ("(value ->> '$.n'", "syntax error at or near", "customer"),
        ("value ->> '$.n' > 5", "Cannot compare values of type VARCHAR and type INTEGER_LITERAL", "customer"),
        ("nope(value)", "Scalar Function with name nope does not exist.", "customer"),
    ],
)
async def test_a_refused_condition_says_what_is_wrong_and_how_a_field_of_json_is_written(
    cluster: Cluster, where: str, what: str, field: str
) -> None:
    """Without the query of the search around it, which the person did not write."""
    (said,) = [line for line in await here(answer_search, cluster, question(where=where)) if "error" in line]
    assert said["sentence"].startswith(f"The condition is refused: {what}")
    for words in ("LINE ", "Error:", "order by", "Candidate", "\n\n"):
        assert words not in said["sentence"]
    example = f"value ->> '$.{field}' = 'c-17'"
    assert f"A field of JSON: {example}. " in said["sentence"]
    for shown in (example, f"(value ->> '$.{field}')::double > 17"):
        assert found(await here(answer_search, cluster, question(where=shown))) == []


def test_a_search_that_fails_by_itself_does_not_blame_the_condition() -> None:
    words = "Out of Memory Error: could not allocate block"
    assert refusal("true", words) == words
    assert refusal("", "Binder Error: x") == "Binder Error: x"


async def test_a_condition_reaches_no_other_topic(cluster: Cluster) -> None:
    everywhere = f"exists (select 1 from batches where topic <> 'orders') or value_text like '%{SECRET}%'"
    lines = await here(answer_search, cluster, question(where=f"false)) or ({everywhere}) or ((false"))
    assert found(lines) == []


def test_a_text_is_no_sql() -> None:
    assert condition(question(text="it's")) == (
        "(contains(lower(value_text), 'it''s') or contains(lower(key_text), 'it''s'))"
    )


def test_a_cut_log_has_only_the_offsets_of_its_chunk() -> None:
    log = Log(topic=TOPIC, partition=0, end=10, segments=(seg(0, 10, 10, 1),))
    (chunk,) = chunks([log], {0: 4}, None)
    assert chunk.log == replace(log, end=4)
