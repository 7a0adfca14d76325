"""The rows of a cost: per second and per month. Pure."""

from __future__ import annotations

from typing import Any, Final

from kafscale.operations.cost.load import GB, MONTH_S, Prices, Requests, bill

COLUMNS: Final = (
    "per",
    "puts",
    "gets",
    "deletes",
    "head_commits",
    "redundant_gb",
    "put_usd",
    "get_usd",
    "store_usd",
    "usd",
)
REQUESTS: Final = ("puts", "gets", "deletes", "head_commits")
DOLLARS: Final = ("put_usd", "get_usd", "store_usd", "usd")


def rows_of(requests: Requests, prices: Prices) -> list[dict[str, Any]]:
    """Counts per month are whole numbers. Dollars are per month only."""
    counts = {each: getattr(requests, each) for each in REQUESTS}
    second = {each: None if count is None else round(count, 1) for each, count in counts.items()}
    month = {each: None if count is None else round(count * MONTH_S) for each, count in counts.items()}
    dollars = bill(requests, prices)
    amounts = (dollars.puts, dollars.gets, dollars.store, dollars.total)
    paid = {
        each: None if amount is None else round(amount, 2)
        for each, amount in zip(DOLLARS, amounts, strict=True)
    }
    redundant_gb = {"redundant_gb": round(requests.redundant_bytes / GB, 2)}
    return [
        {"per": "second"} | second | redundant_gb | dict.fromkeys(DOLLARS),
        {"per": "month"} | month | redundant_gb | paid,
    ]
