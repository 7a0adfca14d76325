"""docs/sql.md is true: its tables have these columns, and each of its examples has an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.sources import TABLES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.records import Codec, Record

from .queries import query

PAGE = (Path(__file__).parents[3] / "docs" / "sql.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
T0 = 1_700_000_000_000


@pytest.fixture
async def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    """The topics that the page speaks of, each with three records that are not JSON; nobody reads customers."""
    lake = Lake(etcd, keyspace, MemoryStore())
    for name in ("orders", "customers"):
        topic = await create_topic(etcd, keyspace, name)
        log = LogBuilder(etcd, keyspace, lake.store, topic)
        for number in range(3):
            value = json.dumps({"country": "de" if number else "fr", "amount": 10.5}).encode()
            some = [
                Record(timestamp=T0 + n, key=b"k%d" % (n % 2), value=value, headers=(("source", b"web"),))
                for n in range(20)
            ]
            await log.append(some, codec=Codec.LZ4)
        bad = (b"not JSON", b"\xff\xfe", None)
        await log.append([Record(timestamp=T0, key=b"k2", value=each, headers=()) for each in bad])
    key = keyspace.committed(slot_of("readers"), "readers", (await read_lake(lake))[1].topic.topic_id, 0)
    await etcd.put(key, encode_committed(CommittedOffset(offset=7, commit_ms=T0)))
    return lake


def columns(table: str) -> list[tuple[str, str]]:
    section = PAGE.split(f"### `{table}`")[1].split("#")[0]
    return re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE)


async def test_every_table_is_there_with_its_columns(lake: Lake) -> None:
    assert re.findall(r"^### `(\w+)`", PAGE, re.MULTILINE) == list(TABLES)
    logs = await read_lake(lake)
    for table in TABLES:
        found = (await query(lake, logs, f"describe {table}")).to_pylist()
        assert [(row["column_name"], row["column_type"]) for row in found] == columns(table), table


@pytest.mark.parametrize("text", EXAMPLES, ids=[" ".join(text.split())[:40] for text in EXAMPLES])
async def test_each_example_has_an_answer(lake: Lake, text: str) -> None:
    found = await query(lake, await read_lake(lake), text)
    assert found.num_rows
    assert all(found[name].null_count < found.num_rows for name in found.column_names), "no column is empty"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9
