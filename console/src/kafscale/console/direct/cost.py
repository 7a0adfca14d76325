"""What topics cost, measured for some seconds, in the child process.

Method. PUTs: each change of a head names the objects that it wrote; a topic's share of a bundle is that of its bytes.
GETs: the instances count them for all topics together; a topic's share is that of the bytes that fetch served of it,
and of the PUTs while nobody reads. Storage: the bytes of the logs. Prices are list prices of S3 Standard in us-east-1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kafscale.console.direct.storage import Logs, read_logs, topic_names
from kafscale.operations.cost.load import MONTH_S, TB, Prices
from kafscale.operations.cost.measure import Measured, measure
from kafscale.storage.keys import TopicId

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster


async def answer_cost(cluster: Cluster, question: Row, say: Say) -> None:
    """`topics`: those to name; `seconds`. Says {measuring} and {cost}."""
    say({"measuring": question["seconds"]})
    logs = await read_logs(cluster, {})
    measured = await measure(cluster.etcd, cluster.keys, question["seconds"])
    stored = bytes_by_topic(logs, await topic_names(cluster))
    rows = cost_rows(measured, stored, frozenset(question["topics"]), Prices())
    say({"cost": rows | {"over_s": measured.over_s, "silent": measured.silent}})


def bytes_by_topic(logs: Logs, names: Mapping[TopicId, str]) -> dict[str, int]:
    """Topics that are being deleted have no name; they are left out."""
    rows = logs.by_topic(names, frozenset(names.values()))
    return {row["topic"]: row["bytes"] for row in rows if row["topic"] is not None}


def cost_rows(measured: Measured, stored: Mapping[str, int], seen: frozenset[str], prices: Prices) -> Row:
    """`items`: a row for each topic that is seen, the dearest first, and one of the others, whose name is None;
    `total`: their sum. Requests are per second, dollars per month. GETs are None if an instance did not answer."""
    puts = measured.puts_by_topic
    gets = shares(measured.requests.gets, measured.read_by_topic or puts)
    rows: dict[str | None, Row] = {}
    for topic in puts.keys() | measured.read_by_topic.keys() | stored.keys():
        name = topic if topic in seen else None
        row = rows.setdefault(name, {"topic": name, "puts": 0.0, "gets": 0.0, "bytes": 0})
        row["puts"] += puts.get(topic, 0.0)
        row["gets"] = None if gets is None else row["gets"] + gets.get(topic, 0.0)
        row["bytes"] += stored.get(topic, 0)
    items = sorted(
        (_priced(row, prices) for row in rows.values()),
        key=lambda row: (row["topic"] is None, -row["usd"], row["topic"]),
    )
    return {"items": items, "total": _sum(items)}


def shares(whole: float | None, weights: Mapping[str, float]) -> dict[str, float] | None:
    """`whole` divided by the weights. They sum to it, if any weight is not 0."""
    if whole is None:
        return None
    weight = sum(weights.values())
    return {name: whole * each / weight for name, each in weights.items()} if weight else {}


def _priced(row: Row, prices: Prices) -> Row:
    put_usd = row["puts"] * MONTH_S * prices.put_usd_per_million / 1e6
    get_usd = None if row["gets"] is None else row["gets"] * MONTH_S * prices.get_usd_per_million / 1e6
    store_usd = row["bytes"] / TB * prices.tb_month_usd
    return row | {
        "put_usd": put_usd,
        "get_usd": get_usd,
        "store_usd": store_usd,
        "usd": put_usd + (get_usd or 0.0) + store_usd,
    }


def _sum(items: Iterable[Row]) -> Row:
    rows = list(items)
    names = ("puts", "gets", "bytes", "put_usd", "get_usd", "store_usd", "usd")
    return {
        name: None if any(row[name] is None for row in rows) else sum(row[name] for row in rows)
        for name in names
    }
