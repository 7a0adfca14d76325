"""The table of all metrics: services create their metrics from its rows, and docs/metrics.md is generated from it.

Names are kafscale_<service>_<noun>_<unit>; counters end in `_total`. Names with another prefix (process_, python_,
kafka_) are those of other projects, so that their dashboards work. The series of a label `topic` end when the topic is
deleted. A label `code` is Kafka's name of the error, and a label `api` Kafka's name of the request. This module imports
nothing of Prometheus. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

SECONDS_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CHOSEN_BY_OTHERS: Final = ("process_", "python_", "kafka_")

MetricKind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """`name` is without the service's prefix; `bounds` are the upper bounds of a histogram's buckets."""

    kind: MetricKind
    name: str
    text: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def exposed(self, service: str) -> str:
        """The name on the service's /metrics."""
        return self.name if self.name.startswith(CHOSEN_BY_OTHERS) else f"kafscale_{service}_{self.name}"


def counter(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(kind="counter", name=name, text=text, labels=labels)


def gauge(name: str, text: str, *labels: str) -> MetricRow:
    return MetricRow(kind="gauge", name=name, text=text, labels=labels)


def histogram(name: str, text: str, *labels: str, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> MetricRow:
    return MetricRow(kind="histogram", name=name, text=text, labels=labels, bounds=bounds)


HISTORY_STOPPED: Final = gauge(
    "history_stopped",
    "1 if etcd was lost, restored or replaced as far as this process knows: it claims and deletes nothing",
)
"""Of each service that claims partitions, creates topics or deletes objects."""
TRANSACTIONS_WITHOUT_RIGHTS: Final = gauge(
    "transactions_without_rights",
    "1 if this process serves no transactions, although they are on, because its user in etcd lacks rights",
)
"""Of the services whose rights in etcd transactions need."""


BYTES_BOUNDS: Final = (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
SLICES_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
JOBS_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 100)
RUN_SECONDS_BOUNDS: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0)

EVERY_SERVICE: Final = (
    gauge("build_info", "Always 1; the label has the version of the service", "version"),
    gauge("loop_lag_seconds", "Longest delay of the event loop since the last scrape"),
    counter("loop_stalls_total", "Times that the event loop was blocked for over half a second"),
    counter("log_lines_dropped_total", "Log lines dropped because standard error did not take them"),
    gauge("memory_budget_bytes", "Memory that requests and buffers may use"),
    gauge("memory_reserved_bytes", "Memory that requests and buffers use"),
    counter("memory_refusals_total", "Reservations refused because the budget was used up"),
    counter("registration_losses_total", "Times that the registration in etcd expired"),
    gauge("registration_age_seconds", "Time since etcd last renewed the registration, which lasts 8 s"),
    gauge("internal_certificate_seconds", "Time until the certificate for internal TLS expires, if it is on"),
    gauge("unreadable_values", "Values in etcd that the process watches and cannot read", "view"),
    counter("trace_spans_lost_total", "Spans that the collector did not accept in time; 0 without traces"),
    gauge("stream_open_requests", "Requests not answered yet"),
    gauge("stream_held_bytes", "Bytes of open requests and waiting replies"),
    counter("stream_requests_total", "Requests received on streams", "kind"),
    counter("stream_replies_total", "Replies sent on streams", "kind"),
    counter(
        "stream_messages_in_total",
        "gRPC messages received; the number of requests per message shows how well they are coalesced",
        "kind",
    ),
    counter("stream_messages_out_total", "gRPC messages sent", "kind"),
    counter("stream_bytes_in_total", "Bytes received on streams", "kind"),
    counter("stream_bytes_out_total", "Bytes sent on streams", "kind"),
    counter("stream_cancelled_total", "Requests whose client left before the reply", "kind"),
    counter("stream_expired_total", "Requests dropped unread because they exceeded their time limit", "kind"),
    counter("stream_refused_total", "Requests refused: the service was leaving or has no such API", "kind"),
    counter("stream_failed_total", "Requests whose handler raised", "kind"),
    counter(
        "stream_too_large_total",
        "Requests and responses refused because they are too large for a stream",
        "kind",
    ),
    counter(
        "stream_pauses_total",
        "Times that a stream was not read because too many requests were open on it",
        "kind",
    ),
)

EVERY_PROCESS: Final = (
    gauge("process_virtual_memory_bytes", "Virtual memory of the process"),
    gauge("process_resident_memory_bytes", "Resident memory of the process"),
    gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970"),
    counter("process_cpu_seconds_total", "CPU time of the process"),
    gauge("process_open_fds", "Open file descriptors"),
    gauge("process_max_fds", "Limit of open file descriptors"),
    gauge("python_info", "Version of Python", "implementation", "major", "minor", "patchlevel", "version"),
)

APIS: Final = (
    counter("requests_total", "Requests answered", "api"),
    counter(
        "errors_total",
        "Errors in responses, one for each partition, topic or group; the front door counts errors in responses "
        "that it creates or joins, the services count the others",
        "api",
        "code",
    ),
    histogram(
        "request_seconds", "Time from arrival to response, including the wait of a fetch for data", "api"
    ),
)

ACCESS: Final = (
    gauge(
        "access_view_age_seconds",
        "Time since the copy of ACLs, users and quotas was known to be complete; some seconds while etcd answers",
    ),
)

DENIALS: Final = (
    counter(
        "denials_total",
        "Denials by the authorizer, one for each name in a request; names that an answer leaves out are not counted",
        "api",
    ),
)

COMMITS: Final = (
    histogram("commit_seconds", "Time from submission to etcd's definite answer"),
    histogram("commit_jobs", "Partitions or groups that shared one commit request", bounds=JOBS_BOUNDS),
    counter("commits_unknown_total", "Commit requests whose outcome was not known"),
)

SHARED_CACHE: Final = (
    counter("shared_cache_hits_total", "Segments found in the shared cache"),
    counter("shared_cache_misses_total", "Segments that the shared cache did not have"),
    counter("shared_cache_skips_total", "Calls skipped because the circuit breaker was open"),
    counter("shared_cache_errors_total", "Calls to the shared cache that failed or were late"),
    counter("shared_cache_corrupt_total", "Entries of the shared cache deleted as damaged"),
    counter(
        "shared_cache_rejected_total",
        "Entries of the shared cache deleted because no key in KAFSCALE_REDIS_MAC_KEY_FILE signed them",
    ),
    counter("shared_cache_fills_total", "Segments put into the shared cache"),
    counter(
        "shared_cache_dropped_fills_total",
        "Segments not put into the shared cache because too many were waiting",
    ),
    counter("shared_cache_read_bytes_total", "Bytes read from the shared cache"),
    counter("shared_cache_written_bytes_total", "Bytes put into the shared cache"),
    gauge(
        "shared_cache_breaker_state",
        "State of the circuit breaker of the shared cache: 0 closed (in use), 1 half-open (trial), 2 open (not used)",
    ),
    histogram("shared_cache_seconds", "One call to the shared cache, failed or not"),
)

FRONTDOOR: Final = (
    *APIS,
    *DENIALS,
    *ACCESS,
    counter("request_bytes_total", "Bytes of requests", "api"),
    counter("response_bytes_total", "Bytes of answers", "api"),
    gauge("connections", "Open client connections"),
    counter("connections_accepted_total", "Client connections accepted"),
    counter("connections_closed_total", "Connections closed by the front door", "reason"),
    histogram("throttle_seconds", "Throttle times of clients that exceeded a quota", "quota"),
    counter(
        "authentications_total",
        "Authentications with SASL: authenticated, reauthenticated, refused, or unavailable, after which clients retry",
        "mechanism",
        "outcome",
    ),
    gauge("authentications_pending", "Authentications that wait for the check of a password or a token"),
    counter("sessions_expired_total", "Connections closed because their SASL session had expired"),
    gauge(
        "token_keys_read_timestamp_seconds",
        "Time at which the keys that verify tokens of OAUTHBEARER were last read, in seconds since 1970",
    ),
    gauge(
        "held_bytes",
        "Bytes held for clients: requests, responses that they have not read, and reserved room for responses",
    ),
    counter("read_stalls_total", "Times that a connection was not read because memory was full"),
    gauge("held_parts", "Per-partition shares of requests that wait for an owner"),
    counter("parts_resent_total", "Shares sent again after a definite refusal"),
    gauge(
        "workers_ready",
        "Worker processes that serve clients; 1 if a single process without workers serves them",
    ),
    counter("answers_dropped_total", "Large responses dropped because memory was full; their clients retry"),
    counter("worker_deaths_total", "Worker processes that died"),
    counter(
        "tls_handshakes_total",
        "TLS handshakes of clients: `succeeded`, `failed`, `unfinished` (the client left, or took too long), `not_tls` "
        "(other bytes), `no_principal` (no mapping rule matches)",
        "listener",
        "outcome",
    ),
    gauge("tls_certificate_seconds", "Time until the certificate that the listener uses expires", "listener"),
    counter(
        "tls_reloads_total",
        "Changed certificate files: `loaded`, or `refused` because they cannot be used",
        "listener",
        "outcome",
    ),
)

PRODUCE: Final = (
    *APIS,
    *COMMITS,
    *SHARED_CACHE,
    counter("records_total", "Records committed", "topic"),
    counter("bytes_total", "Bytes of committed segments and slices, without what slices repeat", "topic"),
    counter("flushes_total", "Segments and slices committed"),
    counter("puts_total", "PUTs sent to the object store, of all objects, including retries"),
    counter("puts_unknown_total", "PUTs whose outcome was not known"),
    counter(
        "stepdowns_total",
        "Writers that gave up their epoch; `fenced`: the commit was refused because of a newer owner",
        "reason",
    ),
    counter("claims_total", "Partitions claimed", "grounds"),
    counter("claims_lost_total", "Claims that failed because another instance was first"),
    counter("handoffs_total", "Partitions handed over"),
    counter("checkpoints_total", "Tails moved to manifests"),
    counter(
        "settled_bytes_total",
        "Bytes of slices that became part of a segment; `memory`: their owner still had them, `store`: it read them",
        "source",
    ),
    counter("settle_reads_total", "Slices that settling read from the store, each with a GET"),
    counter("folded_bytes_total", "Bytes of batches that slices repeated"),
    counter(
        "unreadable_slices_total", "Times that a slice was not settled: it is damaged, or its bundle is gone"
    ),
    counter("manifest_merges_failed_total", "Merges of old manifests that failed"),
    counter("damaged_partitions_total", "Times that a partition was not served because its data is damaged"),
    histogram("put_seconds", "One PUT that succeeded"),
    histogram("flush_seconds", "Time from the seal of a segment to its commit"),
    histogram("recovery_seconds", "Time from the first claim of a partition until it is served"),
    histogram("segment_bytes", "Size of a committed segment or slice", bounds=BYTES_BOUNDS),
    histogram("bundle_bytes", "Size of a bundle that was stored", bounds=BYTES_BOUNDS),
    histogram("bundle_slices", "Slices of a bundle that was stored", bounds=SLICES_BOUNDS),
    histogram(
        "bundle_requests",
        "Requests whose records a bundle carries, counted for each partition",
        bounds=SLICES_BOUNDS,
    ),
    histogram("gather_seconds", "Time that a bundle waited for more requests before it was sealed"),
    counter("gathers_in_vain_total", "Waits of a bundle for more requests in which few or none came"),
    histogram("bundle_seconds", "Time from the seal of a bundle until it was stored, with all its PUTs"),
    gauge("owned_partitions", "Partitions that this instance writes"),
    gauge("head_tokens_waiting", "Partitions that wait for the budget of commits of heads"),
    gauge(
        "oldest_slice_seconds",
        "Age of the oldest slice that is not settled in the partitions of this instance",
    ),
    gauge("puts_in_flight", "PUTs in flight"),
    gauge("puts_in_flight_bytes", "Bytes of the PUTs in flight"),
    gauge("puts_waiting", "PUTs that wait for a place below the limit"),
    gauge("puts_limit", "PUTs that may be in flight now; it falls on a slow store and rises again"),
    counter("puts_limit_halved_total", "Times that a PUT without an answer halved the limit"),
    gauge("conversions_waiting", "Requests with message sets that wait for their conversion to batches"),
    gauge("producer_ids", "Idempotent producers that the partitions of this instance remember"),
    gauge("producer_ids_bytes", "Memory that the remembered producers use"),
    counter(
        "producer_ids_evicted_total", "Producers forgotten before they expired, because the table was full"
    ),
    gauge(
        "open_transactions", "Open transactions in the partitions of this instance, one for each partition"
    ),
    gauge(
        "oldest_open_transaction_seconds",
        "For how long this instance has seen the oldest of them open. Consumers of committed records wait for its end",
    ),
    counter(
        "transaction_joins_total",
        "Questions to coordinators whether a transaction takes batches here; `unanswered`: none came in time",
        "answer",
    ),
    histogram("transaction_join_seconds", "Time until a coordinator answered such a question"),
    gauge("transaction_joins_waiting", "Partitions of requests that wait for the answer to such a question"),
    counter(
        "transaction_ends_total",
        "Ends of transactions that coordinators sent, by partition; `later`: not carried out in time, or not here",
        "answer",
    ),
    counter(
        "marker_bundles_total",
        "Bundles sealed for the ends of transactions with their budget, because that of bundles was used up",
    ),
    TRANSACTIONS_WITHOUT_RIGHTS,
)

FETCH: Final = (
    *APIS,
    *DENIALS,
    *ACCESS,
    *SHARED_CACHE,
    counter("partitions_total", "Partitions in answered Fetch requests"),
    counter("bytes_total", "Bytes of record sets in responses", "topic"),
    counter(
        "records_total",
        "Offsets in the record sets of responses: the number of records, if no record was compacted",
        "topic",
    ),
    counter("joined_segments_total", "Segments with batches in responses"),
    counter("overloads_total", "Fetch requests not held because too many were held already"),
    gauge("held_requests", "Long polls waiting for data"),
    gauge("cache_bytes", "Bytes of segments in memory, including those of unfinished responses"),
    counter("cache_hits_total", "Segments found in memory"),
    counter(
        "cache_loads_total",
        "Reads of the object store for what was not in memory: of one segment, or of slices of one bundle",
    ),
    counter("cache_loaded_bytes_total", "Bytes of segments read from the object store"),
    counter("bundle_reads_total", "Reads of a bundle in the object store, of one slice or of many", "slices"),
    counter("cache_evictions_total", "Segments dropped from memory"),
    counter("cache_refusals_total", "Loads refused because unfinished responses use the memory"),
    counter("readaheads_total", "Segments read ahead of their readers"),
    counter("corrupt_reads_total", "Reads of objects that do not match their commit record"),
    counter("lost_segments_total", "Committed objects that could not be served"),
    gauge("followed_topics", "Topics of which partitions are in memory"),
    gauge("followed_partitions", "Partitions whose metadata is in memory and kept current"),
    counter("metadata_refreshes_total", "Requests that needed a linearizable read of etcd"),
    counter("metadata_reads_total", "Transactions that read etcd"),
    counter("manifest_loads_total", "Manifests read from the object store"),
)

ETCD_SPACE: Final = (
    gauge("etcd_quota_bytes", "Size beyond which etcd accepts no writes"),
    gauge("etcd_file_bytes", "Size of etcd's database file"),
    gauge("etcd_used_bytes", "Bytes of the file that are in use; etcd reuses the rest before the file grows"),
    gauge("etcd_full", "1 while etcd has raised NOSPACE and accepts no writes"),
    counter("etcd_space_refusals_total", "Groups, offsets and topics refused because etcd is filling up"),
)

TRANSACTIONS: Final = (
    counter(
        "transactions_decided_total",
        "Transactions that were decided. The cause is tv1 or tv2 (an EndTxn of such a client), timeout or fence",
        "outcome",
        "cause",
    ),
    gauge(
        "transactions", "Transactions that are not over, by Kafka's name of the state of their id", "state"
    ),
    gauge("transactions_closing", "Transactions that are decided and not ended everywhere"),
    gauge(
        "transactions_closing_oldest_seconds",
        "For how long this instance has known the oldest transaction that is decided and not ended everywhere",
    ),
    counter(
        "transaction_ends_total",
        "Ends that were sent to partitions and groups. done: confirmed. later and failed: to be sent again. "
        "dropped: the topic is deleted",
        "answer",
    ),
    gauge("transactional_ids", "Transactional ids in memory"),
    gauge(
        "transactional_ids_unreadable",
        "Transactional ids that are not served because their records cannot be read",
    ),
    TRANSACTIONS_WITHOUT_RIGHTS,
)

COORDINATOR: Final = (
    *APIS,
    *DENIALS,
    *ACCESS,
    *COMMITS,
    *ETCD_SPACE,
    counter("rebalances_total", "New generations of classic groups, and new epochs of consumer groups"),
    gauge("slots", "Slots of groups that this instance has"),
    counter("slots_lost_total", "Slots of this instance that another instance claimed"),
    gauge("groups", "Groups in memory, by Kafka's name of the state", "state"),
    counter("offsets_unreadable_total", "Times that a committed offset could not be read"),
    gauge("groups_unreadable", "Groups that are not served because their records cannot be read"),
    *TRANSACTIONS,
    gauge("pending_offsets", "Offsets of groups that wait for the end of a transaction"),
    gauge(
        "pending_offsets_unreadable",
        "Values of pending offsets that cannot be read; the transactions cannot end in these groups",
    ),
)

ADMIN: Final = (
    *APIS,
    *DENIALS,
    *ETCD_SPACE,
    *ACCESS,
    gauge("deleting_topics", "Topics that are marked as deleted but still have objects"),
    counter("deleted_objects_total", "Objects of deleted topics that this instance deleted"),
    gauge(
        "deletion_stalled_rounds", "Rounds in a row in which no topic deletion of this instance made progress"
    ),
)

_PARTITION: Final = ("cluster_name", "topic", "partition")
_MEMBER: Final = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")
_GROUP: Final = ("cluster_name", "group")
_LAG: Final = "kafka_consumergroup_group"

LAG: Final = (
    gauge("kafka_partition_latest_offset", "Latest offset of a partition", *_PARTITION),
    gauge("kafka_partition_earliest_offset", "Earliest offset of a partition", *_PARTITION),
    gauge(
        "kafka_partition_last_stable_offset",
        "Last stable offset of a partition: read_committed consumers read below it",
        *_PARTITION,
    ),
    gauge(f"{_LAG}_offset", "Last group consumed offset of a partition", *_MEMBER),
    gauge(f"{_LAG}_lag", "Group offset lag of a partition", *_MEMBER),
    gauge(f"{_LAG}_stable_lag", "Group offset lag of a partition, to the last stable offset", *_MEMBER),
    gauge(f"{_LAG}_lag_seconds", "Group time lag of a partition", *_MEMBER),
    gauge(f"{_LAG}_eta_seconds", "Time until a partition is read to its end, at the present rates", *_MEMBER),
    gauge(
        f"{_LAG}_expires_seconds",
        "Time until retention deletes the group's next record of a partition",
        *_MEMBER,
    ),
    gauge(
        f"{_LAG}_status",
        "Status (Burrow's): 0 unknown, 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND; 7 LOST, 8 AHEAD, 9 REPLACED",
        *_MEMBER,
    ),
    gauge(f"{_LAG}_lost", "Records deleted before the group read them, until it commits again", *_MEMBER),
    gauge(f"{_LAG}_ahead", "Offsets by which the committed offset is beyond the end of the log", *_MEMBER),
    gauge(f"{_LAG}_max_lag", "Max group offset lag", *_GROUP),
    gauge(f"{_LAG}_max_lag_seconds", "Max group time lag", *_GROUP),
    gauge(f"{_LAG}_sum_lag", "Sum of group offset lag", *_GROUP),
    gauge(f"{_LAG}_topic_sum_lag", "Sum of group offset lag across topic partitions", *_GROUP, "topic"),
    gauge(f"{_LAG}_uncommitted_lag", "Records in partitions without a committed offset", *_GROUP, "topic"),
)
"""The names of kafka-lag-exporter. `kafscale.lake.lag.prometheus` computes the values."""

UPKEEP: Final = (
    gauge("working", "1 if the tasks run here"),
    counter("runs_total", "Successful runs of a task", "task"),
    counter("failures_total", "Runs of a task that failed or did not end in time", "task"),
    gauge("stalled_runs", "Runs of a task in a row that found work but made no progress", "task"),
    gauge(
        "last_run_timestamp_seconds",
        "Time of the task's last successful run on this instance, in seconds since 1970",
        "task",
    ),
    gauge("next_run_timestamp_seconds", "Time when the task is due, in seconds since 1970", "task"),
    histogram("run_seconds", "Duration of successful runs", "task", bounds=RUN_SECONDS_BOUNDS),
    counter("log_starts_moved_total", "Logs whose start retention moved"),
    counter("retention_deleted_segments_total", "Segments that retention deleted"),
    counter("retention_deleted_bytes_total", "Bytes of segments that retention deleted, with the indexes"),
    gauge(
        "retention_missed_logs",
        "Logs that the last run could not read, or that other processes kept changing",
    ),
    counter("retention_failed_deletes_total", "Deletions that failed; the next run tries again"),
    counter("compacted_logs_total", "Logs that compaction processed"),
    counter("compaction_bytes_before_total", "Bytes of the segments before compaction"),
    counter("compaction_bytes_after_total", "Bytes of the segments after compaction"),
    gauge("uncleanable_partitions", "Logs that the last round could not compact", "reason"),
    gauge("compaction_unfinished_logs", "Due logs that the last round had no time for, or not enough"),
    gauge("compaction_longest_seconds", "Longest time for one log in the last round"),
    gauge(
        "compaction_delay_seconds",
        "Time by which the oldest dirty record exceeded max.compaction.lag.ms when the last round began",
    ),
    counter("compaction_failed_deletes_total", "Replaced objects that are left to the collector of orphans"),
    counter("orphans_deleted_objects_total", "Deleted objects that no metadata named"),
    counter("swept_bundles_total", "Bundles that the sweep deleted"),
    counter("heads_bumped_total", "Partitions without an owner whose leader epoch the sweep raised"),
    gauge("bundles_live", "Bundles that were old enough for the last sweep and that it left"),
    gauge(
        "bundles_pinned_seconds",
        "Age of the oldest bundle that no head names and that an owner may still commit, at the last sweep",
    ),
    gauge("strange_objects", "Objects in topics' trees with unknown names, at the last collection"),
    gauge(
        "last_backup_timestamp_seconds", "Time of the newest snapshot of etcd, in seconds since 1970; 0: none"
    ),
    counter("lag_samples_total", "Rows of lag history written"),
    gauge("lag_left_out_series", "Series of the last lag sample that are too many to be exported"),
    counter("lag_files_expired_total", "Files of lag history deleted because of their age"),
    *LAG,
)

CONSOLE: Final = (
    counter(
        "requests_total",
        "Requests by the route's path and the status of the answer; left: the browser did not wait for its end",
        "route",
        "status",
    ),
    histogram("request_seconds", "Time from a request to the end of its answer", "route"),
    gauge("requests_in_progress", "Requests of the API that are not answered yet"),
    gauge("connections", "Open connections of browsers"),
    gauge("sessions", "People who are logged in"),
    gauge("tails", "Open tails of topics"),
    counter(
        "records_decoded_total",
        "Keys and values that name a schema of the registry; unknown: the registry did not give the schema",
        "format",
        "outcome",
    ),
)
"""The console is no service: it has no loop of streams, and none of EVERY_SERVICE."""

OWN: Final[Mapping[str, tuple[MetricRow, ...]]] = {
    "frontdoor": FRONTDOOR,
    "produce": (*PRODUCE, HISTORY_STOPPED),
    "fetch": FETCH,
    "coordinator": COORDINATOR,
    "admin": (*ADMIN, HISTORY_STOPPED),
    "upkeep": (*UPKEEP, HISTORY_STOPPED),
}


def rows_of(service: str) -> Iterator[MetricRow]:
    """The metrics of a service. Prometheus' client adds those of EVERY_PROCESS."""
    yield from EVERY_SERVICE
    yield from OWN[service]
