"""The one table of what is measured: services make their metrics of its rows, and docs/metrics.md is made of it.

Names are kafscale_<service>_<noun>_<unit>, counters end in `_total`. A name that has a prefix of its own (process_,
python_, kafka_) is one that others chose and whose dashboards fit. A label `topic` ends with its topic, a label
`code` is Kafka's name of the error, a label `api` its name of the request. Nothing of Prometheus is imported here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

SECONDS_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BYTES_BOUNDS: Final = (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)
JOBS_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 100)
RUN_SECONDS_BOUNDS: Final = (0.1, 1.0, 10.0, 60.0, 300.0, 600.0, 1_800.0, 3_600.0)
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


EVERY_SERVICE: Final = (
    gauge("loop_lag_seconds", "Worst lateness of the event loop since the last scrape"),
    counter("loop_stalls_total", "Times the process stood still for over half a second"),
    counter("log_lines_dropped_total", "Log lines dropped because standard error did not take them"),
    gauge("memory_budget_bytes", "What requests and buffers may hold"),
    gauge("memory_reserved_bytes", "What requests and buffers hold"),
    counter("memory_refusals_total", "Reservations refused because the budget was used up"),
    counter("registration_losses_total", "Times the registration in etcd ran out"),
    gauge("registration_age_seconds", "Since etcd last renewed the registration, which lasts 8 s"),
    gauge("unreadable_values", "Values in etcd that the process watches and cannot read", "view"),
    counter(
        "trace_spans_lost_total", "Spans that their collector did not take, or not in time; 0 without traces"
    ),
    gauge("stream_open_requests", "Requests not answered yet"),
    gauge("stream_held_bytes", "Bytes of open requests and waiting replies"),
    counter("stream_requests_total", "Requests received on streams", "kind"),
    counter("stream_replies_total", "Replies given to streams", "kind"),
    counter(
        "stream_messages_in_total",
        "gRPC messages received; requests per message tell how well they are coalesced",
        "kind",
    ),
    counter("stream_messages_out_total", "gRPC messages sent", "kind"),
    counter("stream_bytes_in_total", "Bytes received on streams", "kind"),
    counter("stream_bytes_out_total", "Bytes sent on streams", "kind"),
    counter("stream_cancelled_total", "Requests whose client left before the reply", "kind"),
    counter(
        "stream_expired_total", "Requests dropped unread because they were older than their budget", "kind"
    ),
    counter(
        "stream_refused_total", "Requests refused because the service was leaving or has no such API", "kind"
    ),
    counter("stream_failed_total", "Requests whose handler raised", "kind"),
    counter(
        "stream_too_large_total", "Requests and answers refused because a stream carries no such size", "kind"
    ),
    counter("stream_pauses_total", "Times a stream was not read because too much was open on it", "kind"),
)

EVERY_PROCESS: Final = (
    gauge("process_virtual_memory_bytes", "Virtual memory of the process"),
    gauge("process_resident_memory_bytes", "Resident memory of the process"),
    gauge("process_start_time_seconds", "When the process began, since 1970"),
    counter("process_cpu_seconds_total", "Processor time of the process"),
    gauge("process_open_fds", "Open file descriptors"),
    gauge("process_max_fds", "How many file descriptors may be open"),
    gauge("python_info", "The Python that runs", "implementation", "major", "minor", "patchlevel", "version"),
)

APIS: Final = (
    counter("requests_total", "Requests answered", "api"),
    counter(
        "errors_total",
        "Errors that answers held, one for each partition, topic or group; the front door counts those that it puts "
        "or joins itself, what it passes on unread is counted by its service",
        "api",
        "code",
    ),
    histogram("request_seconds", "From arrival to answer; a fetch that waits for data waits in it", "api"),
)

COMMITS: Final = (
    histogram("commit_seconds", "From submission to etcd's definite answer"),
    histogram("commit_jobs", "Partitions or groups that shared one commit request", bounds=JOBS_BOUNDS),
    counter("commits_unknown_total", "Commit requests whose outcome was not known"),
)

SHARED_CACHE: Final = (
    counter("shared_cache_hits_total", "Segments found in the shared cache"),
    counter("shared_cache_misses_total", "Segments that the shared cache did not have"),
    counter("shared_cache_skips_total", "Calls not made: the shared cache is left alone after failures"),
    counter("shared_cache_errors_total", "Calls to the shared cache that failed or were late"),
    counter("shared_cache_corrupt_total", "Entries of the shared cache deleted as damaged"),
    counter("shared_cache_fills_total", "Segments put into the shared cache"),
    counter("shared_cache_dropped_fills_total", "Segments not put there because too much waited already"),
    counter("shared_cache_read_bytes_total", "Bytes read from the shared cache"),
    counter("shared_cache_written_bytes_total", "Bytes put into the shared cache"),
    gauge("shared_cache_breaker_state", "Whether the shared cache is used: 0 yes, 1 on trial, 2 left alone"),
    histogram("shared_cache_seconds", "One call to the shared cache, failed or not"),
)

FRONTDOOR: Final = (
    *APIS,
    counter("request_bytes_total", "Bytes of requests", "api"),
    counter("response_bytes_total", "Bytes of answers", "api"),
    gauge("connections", "Open client connections"),
    counter("connections_accepted_total", "Client connections accepted"),
    counter("connections_closed_total", "Connections closed by us", "reason"),
    gauge(
        "held_bytes",
        "Bytes held for clients: requests, and answers that they have not taken or that are reserved",
    ),
    counter("answers_dropped_total", "Large answers thrown away for want of memory; their clients ask again"),
    counter("read_stalls_total", "Times a connection was left unread for want of memory"),
    gauge("held_parts", "Partitions' shares of requests held for an owner"),
    counter("parts_resent_total", "Shares sent again after a definite no"),
    gauge("workers_ready", "Worker processes that serve clients; without any, 1 while this one does"),
    counter("worker_deaths_total", "Worker processes that died"),
)

PRODUCE: Final = (
    *APIS,
    *COMMITS,
    *SHARED_CACHE,
    counter("records_total", "Records committed", "topic"),
    counter("bytes_total", "Bytes of committed segments", "topic"),
    counter("flushes_total", "Segments committed"),
    counter("puts_total", "PUTs sent to the object store, repeated ones included"),
    counter("puts_unknown_total", "PUTs whose outcome was not known"),
    counter(
        "stepdowns_total",
        "Writers that gave up their epoch; `fenced`: the commit was refused because a newer owner stands",
        "reason",
    ),
    counter("claims_total", "Partitions claimed", "grounds"),
    counter("claims_lost_total", "Claims that lost their compare"),
    counter("handoffs_total", "Partitions given away"),
    counter("checkpoints_total", "Tails moved to manifests"),
    counter("manifest_merges_failed_total", "Merges of old manifests that could not be done"),
    counter("damaged_partitions_total", "Times that a partition was not served because its data is damaged"),
    histogram("put_seconds", "One PUT that succeeded"),
    histogram("flush_seconds", "From a segment's seal to its commit"),
    histogram("recovery_seconds", "From a request's first claim to serving"),
    histogram("segment_bytes", "Size of a committed segment", bounds=BYTES_BOUNDS),
    gauge("owned_partitions", "Partitions this instance writes"),
    gauge("governor_waiting_partitions", "Partitions that wait for the PUT budget"),
    gauge("conversions_waiting", "Requests with message sets that wait to be made batches of"),
    gauge("producer_ids", "Idempotent producers that the partitions of this instance remember"),
    gauge("producer_ids_bytes", "Memory that they take"),
    counter("producer_ids_evicted_total", "Producers forgotten before they expired, for want of room"),
)

FETCH: Final = (
    *APIS,
    *SHARED_CACHE,
    counter("partitions_total", "Partitions in answered Fetch requests"),
    counter("bytes_total", "Bytes of record sets answered", "topic"),
    counter("records_total", "Offsets that those record sets span: their records, until compaction", "topic"),
    counter("joined_segments_total", "Segments whose batches were answered"),
    counter("overloads_total", "Fetch requests not held because too many were"),
    gauge("held_requests", "Long polls waiting for data"),
    gauge("cache_bytes", "Segments in memory, those of answers under way included"),
    counter("cache_hits_total", "Segments found in memory"),
    counter("cache_loads_total", "Segments not in memory, and read from the object store"),
    counter("cache_loaded_bytes_total", "Bytes of segments read from the object store"),
    counter("cache_evictions_total", "Segments dropped from memory"),
    counter("cache_refusals_total", "Loads refused because answers hold the memory"),
    counter("readaheads_total", "Segments read ahead of their readers"),
    counter("corrupt_reads_total", "Objects read that do not match their commit record"),
    counter("lost_segments_total", "Committed objects that could not be served"),
    gauge("followed_topics", "Topics whose logs are watched"),
    counter("metadata_refreshes_total", "Requests that asked etcd for the truth"),
    counter("metadata_reads_total", "Transactions in which etcd was asked"),
    counter("manifest_loads_total", "Manifests read from the object store"),
)

ETCD_SPACE: Final = (
    gauge("etcd_quota_bytes", "Size past which etcd takes no writes"),
    gauge("etcd_file_bytes", "Size of etcd's database file"),
    gauge("etcd_used_bytes", "Bytes of the file that are in use; the rest is written again before it grows"),
    gauge("etcd_full", "1 while etcd has raised NOSPACE and takes no writes"),
    counter("etcd_space_refusals_total", "Groups, offsets and topics refused to keep etcd's last share"),
)

COORDINATOR: Final = (
    *APIS,
    *COMMITS,
    *ETCD_SPACE,
    counter("rebalances_total", "New generations of classic groups, and new epochs of consumer groups"),
    gauge("slots", "Slots of groups this instance has"),
    counter("slots_lost_total", "Slots that were ours until another claimed them"),
    gauge("groups", "Groups in memory, by Kafka's name of their state", "state"),
    counter("offsets_unreadable_total", "Times that a committed offset was met that cannot be read"),
    gauge("groups_unreadable", "Groups that are not served because their records cannot be read"),
)

ADMIN: Final = (
    *APIS,
    *ETCD_SPACE,
    gauge("deleting_topics", "Topics that are marked as deleted and not gone yet"),
    counter("deleted_objects_total", "Objects of deleted topics that this instance deleted"),
    gauge("deletion_stalled_rounds", "Rounds in a row in which no deletion of a topic got on here"),
)

_PARTITION: Final = ("cluster_name", "topic", "partition")
_MEMBER: Final = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")
_GROUP: Final = ("cluster_name", "group")
_LAG: Final = "kafka_consumergroup_group"

LAG: Final = (
    gauge("kafka_partition_latest_offset", "Latest offset of a partition", *_PARTITION),
    gauge("kafka_partition_earliest_offset", "Earliest offset of a partition", *_PARTITION),
    gauge(f"{_LAG}_offset", "Last group consumed offset of a partition", *_MEMBER),
    gauge(f"{_LAG}_lag", "Group offset lag of a partition", *_MEMBER),
    gauge(f"{_LAG}_lag_seconds", "Group time lag of a partition", *_MEMBER),
    gauge(
        f"{_LAG}_eta_seconds",
        "Time until the group has read all of a partition, if it goes on as now",
        *_MEMBER,
    ),
    gauge(
        f"{_LAG}_expires_seconds",
        "Time until retention takes the group's next record of a partition",
        *_MEMBER,
    ),
    gauge(
        f"{_LAG}_status",
        "Burrow's status of the group on a partition: 0 unknown, 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND",
        *_MEMBER,
    ),
    gauge(f"{_LAG}_max_lag", "Max group offset lag", *_GROUP),
    gauge(f"{_LAG}_max_lag_seconds", "Max group time lag", *_GROUP),
    gauge(f"{_LAG}_sum_lag", "Sum of group offset lag", *_GROUP),
    gauge(f"{_LAG}_topic_sum_lag", "Sum of group offset lag across topic partitions", *_GROUP, "topic"),
)
"""By the names of kafka-lag-exporter, and as `kafscale.lake.lag.prometheus` measures them."""

UPKEEP: Final = (
    gauge("working", "1 if the tasks run here"),
    counter("runs_total", "Runs of a task that ended well", "task"),
    counter("failures_total", "Runs of a task that failed or did not end in time", "task"),
    gauge("stalled_runs", "Runs of a task in a row that found work and got nowhere", "task"),
    gauge("last_run_timestamp_seconds", "When the task's last run here ended well, since 1970", "task"),
    histogram("run_seconds", "Duration of runs that ended well", "task", bounds=RUN_SECONDS_BOUNDS),
    counter("log_starts_moved_total", "Logs that retention let start later"),
    counter("retention_deleted_segments_total", "Segments that retention deleted"),
    counter("retention_deleted_bytes_total", "Their bytes, with the indexes"),
    gauge("retention_missed_logs", "Logs that the last run could not read, or that others kept changing"),
    counter("retention_failed_deletes_total", "Deletions that failed; the next run tries again"),
    counter("compacted_logs_total", "Logs that compaction went through"),
    counter("compaction_bytes_before_total", "Bytes of the segments that it went through"),
    counter("compaction_bytes_after_total", "Bytes of the segments that it left"),
    gauge("uncleanable_partitions", "Logs that the last round could not compact", "reason"),
    gauge("compaction_unfinished_logs", "Due logs that the last round had no time for, or not enough"),
    gauge("compaction_longest_seconds", "The longest time that a log took in the last round"),
    gauge(
        "compaction_delay_seconds",
        "How long past max.compaction.lag.ms the oldest dirty record waited when the last round began",
    ),
    counter("compaction_failed_deletes_total", "Replaced objects that are left to the collector of orphans"),
    counter("orphans_deleted_objects_total", "Objects that nothing named, deleted"),
    gauge("strange_objects", "Objects in topics' trees that are no segments of ours, at the last collection"),
    counter("lag_samples_total", "Rows of lag history written"),
    gauge(
        "lag_left_out_series",
        "Series of the last sample of lag that are not shown because there are too many",
    ),
    counter("lag_files_expired_total", "Files of lag history deleted for their age"),
    *LAG,
)

OWN: Final[Mapping[str, tuple[MetricRow, ...]]] = {
    "frontdoor": FRONTDOOR,
    "produce": PRODUCE,
    "fetch": FETCH,
    "coordinator": COORDINATOR,
    "admin": ADMIN,
    "upkeep": UPKEEP,
}


def rows_of(service: str) -> Iterator[MetricRow]:
    """What the service makes; what Prometheus' own client says of the process (EVERY_PROCESS) comes with it."""
    yield from EVERY_SERVICE
    yield from OWN[service]
