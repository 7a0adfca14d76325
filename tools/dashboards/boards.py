"""The dashboards: an overview, and one page for each service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.operations.services import UPKEEP, WHAT_THEY_DO

from tools.dashboards.panels import Dashboard, Panel, Query, Unit, quantile, rate

SERVICES: Final = (*WHAT_THEY_DO,)
ANSWERING: Final = tuple(service for service in SERVICES if service != UPKEEP)


def of_each(services: Sequence[str], expr: str, legend: str = "{service}") -> tuple[Query, ...]:
    """The query for each service; `{service}` is replaced by its name."""
    return tuple(
        Query(expr.replace("{service}", service), legend.replace("{service}", service))
        for service in services
    )


def line(title: str, text: str, unit: Unit, *queries: tuple[str, str]) -> Panel:
    """A graph over time, three of them side by side."""
    return Panel(title=title, text=text, unit=unit, queries=[Query(*query) for query in queries])


def requests_of(service: str) -> tuple[Panel, ...]:
    """The same three panels for every service that answers requests."""
    prefix = f"kafscale_{service}"
    return (
        line(
            "Requests",
            "Answered requests by API. A fall to nothing while clients run: look at the front door's connections.",
            "reqps",
            (rate(f"{prefix}_requests_total", "api"), "{{api}}"),
        ),
        line(
            "Response time, p99",
            "From arrival to answer. Fetch waits for data and JoinGroup for members: long times are theirs by right.",
            "s",
            (quantile(0.99, f"{prefix}_request_seconds", "api"), "{{api}}"),
        ),
        line(
            "Errors in answers",
            "By Kafka's name. KAFKA_STORAGE_ERROR: the store. NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR: owners move, "
            "which passes. REQUEST_TIMED_OUT: etcd or the store is slow.",
            "ops",
            (rate(f"{prefix}_errors_total", "api, code"), "{{api}} {{code}}"),
        ),
    )


def process_of(service: str) -> tuple[Panel, ...]:
    prefix = f"kafscale_{service}"
    return (
        line(
            "Event loop lag, worst",
            "Above half a second an instance is blocked: it lacks CPU, or one request is too large. "
            "Scale out.",
            "s",
            (f"max by (instance) ({prefix}_loop_lag_seconds)", "{{instance}}"),
        ),
        line(
            "Memory of requests and buffers",
            "Share of KAFSCALE_MEMORY_BYTES. Near 1 requests are refused: scale out, or look for who holds it.",
            "percentunit",
            (
                f"max by (instance) ({prefix}_memory_reserved_bytes / {prefix}_memory_budget_bytes)",
                "{{instance}}",
            ),
        ),
    )


OVERVIEW: Final = Dashboard(
    uid="kafscale-overview",
    title="KafScale: overview",
    text="Begin here. What is red says which page to open next; docs/operations.md says what to do.",
    panels=(
        Panel(
            title="Instances",
            text="That answer to scrapes. None of a service: nothing of its kind is answered; start one.",
            unit="short",
            queries=of_each(SERVICES, "count(kafscale_{service}_loop_lag_seconds)"),
            kind="stat",
            width=24,
        ),
        line(
            "Requests",
            "What clients ask, by API.",
            "reqps",
            (rate("kafscale_frontdoor_requests_total", "api"), "{{api}}"),
        ),
        line(
            "Response time, p99",
            "As clients see it, but for the network. Fetch waits for data.",
            "s",
            (quantile(0.99, "kafscale_frontdoor_request_seconds", "api"), "{{api}}"),
        ),
        Panel(
            title="Errors in answers",
            text="By Kafka's name and who gave it; the service's page says for which API.",
            unit="ops",
            queries=of_each(
                ANSWERING, rate("kafscale_{service}_errors_total", "code"), "{{code}} ({service})"
            ),
        ),
        line(
            "Bytes",
            "Committed and served. Served without committed: consumers catch up.",
            "Bps",
            (rate("kafscale_produce_bytes_total"), "committed"),
            (rate("kafscale_fetch_bytes_total"), "served"),
        ),
        line(
            "Records",
            "Committed and served.",
            "cps",
            (rate("kafscale_produce_records_total"), "committed"),
            (rate("kafscale_fetch_records_total"), "served"),
        ),
        line(
            "Lag of the slowest groups",
            "Age of the next record that a group has not read. Growing: it reads slower than is written.",
            "s",
            ("topk(10, max by (group) (kafka_consumergroup_group_max_lag_seconds))", "{{group}}"),
        ),
        line(
            "Object store and etcd, p99",
            "A PUT, a commit at produce, a commit at a coordinator. What grows names who is slow.",
            "s",
            (quantile(0.99, "kafscale_produce_put_seconds"), "PUT"),
            (quantile(0.99, "kafscale_produce_commit_seconds"), "commit of records"),
            (quantile(0.99, "kafscale_coordinator_commit_seconds"), "commit of groups"),
        ),
        Panel(
            title="Event loop lag, worst",
            text="Above half a second an instance is blocked: scale out its service.",
            unit="s",
            queries=of_each(SERVICES, "max(kafscale_{service}_loop_lag_seconds)"),
        ),
        line(
            "Resident memory",
            "Of each process. It must level off; docs/operations.md says what each service needs.",
            "bytes",
            ("max by (job) (process_resident_memory_bytes)", "{{job}}"),
        ),
        line(
            "Processor",
            "Cores that each service uses in all. One process uses one core at most: at 1 per instance, scale out.",
            "short",
            ("sum by (job) (rate(process_cpu_seconds_total[$__rate_interval]))", "{{job}}"),
        ),
    ),
)

FRONTDOOR: Final = Dashboard(
    uid="kafscale-frontdoor",
    title="KafScale: front door",
    text="Connections, what they ask, and what is held for them.",
    panels=(
        *requests_of("frontdoor"),
        line(
            "Connections",
            "Open, by instance. Uneven after a scale-up is normal: clients stay where they are.",
            "short",
            ("sum by (instance) (kafscale_frontdoor_connections)", "{{instance}}"),
        ),
        line(
            "Connections that come and are closed",
            "Closed by us: too_many asks for another front door, idle is the rule of connections.max.idle.ms, "
            "the others are clients that are no Kafka clients.",
            "cps",
            (rate("kafscale_frontdoor_connections_accepted_total"), "accepted"),
            (rate("kafscale_frontdoor_connections_closed_total", "reason"), "closed: {{reason}}"),
        ),
        line(
            "Bytes of requests and answers",
            "By API.",
            "Bps",
            (rate("kafscale_frontdoor_request_bytes_total", "api"), "in: {{api}}"),
            (rate("kafscale_frontdoor_response_bytes_total", "api"), "out: {{api}}"),
        ),
        line(
            "Held for owners",
            "Shares of produce requests whose partition has no owner that answers. Not falling: look at produce.",
            "short",
            ("sum by (instance) (kafscale_frontdoor_held_parts)", "{{instance}}"),
        ),
        line(
            "Sent again, sockets unread",
            "Shares sent again after a definite no; for want of memory: sockets not read, answers thrown away.",
            "ops",
            (rate("kafscale_frontdoor_parts_resent_total"), "sent again"),
            (rate("kafscale_frontdoor_read_stalls_total"), "unread for want of memory"),
            (rate("kafscale_frontdoor_answers_dropped_total"), "large answers thrown away"),
        ),
        line(
            "Worker processes",
            "That serve, and deaths: any death has a reason in the log.",
            "short",
            ("sum(kafscale_frontdoor_workers_ready)", "serving"),
            ("sum(increase(kafscale_frontdoor_worker_deaths_total[$__rate_interval]))", "died"),
        ),
        line(
            "Bytes held",
            "Of requests that clients wait for.",
            "bytes",
            ("sum by (instance) (kafscale_frontdoor_held_bytes)", "{{instance}}"),
        ),
        *process_of("frontdoor"),
    ),
)

FETCH: Final = Dashboard(
    uid="kafscale-fetch",
    title="KafScale: fetch",
    text="What is read, from memory or from the store.",
    panels=(
        *requests_of("fetch"),
        line(
            "Served bytes by topic",
            "The ten largest.",
            "Bps",
            (f"topk(10, {rate('kafscale_fetch_bytes_total', 'topic')})", "{{topic}}"),
        ),
        line(
            "Served records by topic",
            "The ten largest.",
            "cps",
            (f"topk(10, {rate('kafscale_fetch_records_total', 'topic')})", "{{topic}}"),
        ),
        line(
            "Share of segments found in memory",
            "Falls when consumers read what is old, or when memory is short: raise KAFSCALE_CACHE_BYTES, or scale out.",
            "percentunit",
            (
                f"{rate('kafscale_fetch_cache_hits_total')} / ({rate('kafscale_fetch_cache_hits_total')}"
                f" + {rate('kafscale_fetch_cache_loads_total')})",
                "in memory",
            ),
        ),
        line(
            "Read from the store",
            "Each costs a GET; what was read ahead is there when its reader comes.",
            "ops",
            (rate("kafscale_fetch_cache_loads_total"), "segments"),
            (rate("kafscale_fetch_readaheads_total"), "of them ahead of readers"),
            (rate("kafscale_fetch_manifest_loads_total"), "manifests"),
        ),
        line(
            "Bytes from the store",
            "Much more than is served: consumers share little, or the cache is too small.",
            "Bps",
            (rate("kafscale_fetch_cache_loaded_bytes_total"), "read"),
            (rate("kafscale_fetch_bytes_total"), "served"),
        ),
        line(
            "Cache",
            "What is held. At its bound segments are dropped, which is normal.",
            "bytes",
            ("sum by (instance) (kafscale_fetch_cache_bytes)", "{{instance}}"),
        ),
        line(
            "Shared cache",
            "Nothing while KAFSCALE_REDIS_URL is not set. Errors and calls not made: redis is slow or gone, which only "
            "costs speed. Not signed: somebody else writes to redis, or services have different keys.",
            "ops",
            (rate("kafscale_fetch_shared_cache_hits_total"), "found"),
            (rate("kafscale_fetch_shared_cache_misses_total"), "not there"),
            (rate("kafscale_fetch_shared_cache_errors_total"), "failed or late"),
            (rate("kafscale_fetch_shared_cache_skips_total"), "not made"),
            (rate("kafscale_fetch_shared_cache_rejected_total"), "not signed"),
        ),
        line(
            "Lost or damaged",
            "Lost above nothing: committed records cannot be served. Run `kafscale fsck` at once.",
            "ops",
            (rate("kafscale_fetch_lost_segments_total"), "lost"),
            (rate("kafscale_fetch_corrupt_reads_total"), "damaged reads"),
            (rate("kafscale_fetch_cache_refusals_total"), "refused for want of memory"),
            (rate("kafscale_fetch_overloads_total"), "polls not held"),
        ),
        line(
            "Long polls",
            "Consumers that wait for data.",
            "short",
            ("sum by (instance) (kafscale_fetch_held_requests)", "{{instance}}"),
        ),
        line(
            "Questions to etcd",
            "Transactions, and requests that had to ask.",
            "ops",
            (rate("kafscale_fetch_metadata_reads_total"), "transactions"),
            (rate("kafscale_fetch_metadata_refreshes_total"), "requests that asked"),
        ),
        *process_of("fetch"),
    ),
)
