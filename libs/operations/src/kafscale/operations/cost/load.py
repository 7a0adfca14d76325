"""What the cost depends on, and what comes out: values only. Rates are per second, of the whole cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MONTH_S: Final = 30 * 86_400
MB: Final = 1_000_000
GB: Final = 1_000_000_000
TB: Final = 1_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Records of one size that arrive at random times, spread evenly over the partitions."""

    bytes_per_s: float
    partitions: int
    instances: int
    record_bytes: int = 1_000
    reads: float = 1.0
    """How many times each record is read from the store soon after its commit."""

    @property
    def owners(self) -> int:
        """Produce instances that own a partition."""
        return min(self.instances, self.partitions)

    @property
    def records_per_s(self) -> float:
        return self.bytes_per_s / self.record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The settings of the produce service that change the number of requests. The defaults are those on S3.

    `flush_ms` is no setting: it is the assumed time from a seal to its commit, 30 ms for the PUT, 5 ms for etcd and
    10 ms for the work around them.
    """

    bundles_per_s: int = 20
    head_commits_per_s: int = 2_000
    segment_bytes: int = 4 << 20
    bundle_direct_bytes: int = 1 << 20
    settle_keep_bytes: int = 64 << 20
    settle_ms: int = 900_000
    bundle_grace_ms: int = 900_000
    linger_ms: int = 5
    flush_ms: int = 45

    @property
    def flush_s(self) -> float:
        return self.flush_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """In dollars. The defaults are those of S3 Standard in us-east-1. A DELETE is free."""

    put_usd_per_million: float = 5.0
    get_usd_per_million: float = 0.4
    tb_month_usd: float = 23.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """None: not known."""

    puts: float
    gets: float | None
    deletes: float
    head_commits: float
    redundant_bytes: float
    """Bytes that the store holds in addition to the segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Dollars per month. `gets` is None if they are not known; then the total is without them."""

    puts: float
    gets: float | None
    store: float

    @property
    def total(self) -> float:
        return self.puts + (self.gets or 0.0) + self.store


def bill(requests: Requests, prices: Prices) -> Bill:
    def month(per_s: float, per_million: float) -> float:
        return per_s * MONTH_S * per_million / 1e6

    return Bill(
        puts=month(requests.puts, prices.put_usd_per_million),
        gets=None if requests.gets is None else month(requests.gets, prices.get_usd_per_million),
        store=requests.redundant_bytes / TB * prices.tb_month_usd,
    )
