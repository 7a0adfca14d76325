"""Dashboards of groups and their lag, and of upkeep and storage."""

from __future__ import annotations

from typing import Final

from tools.dashboards.boards import line, process_of, requests_of
from tools.dashboards.panels import Dashboard, quantile, rate

GROUPS: Final = Dashboard(
    uid="kafscale-groups",
    title="KafScale: groups and lag",
    text="Coordinators, their groups, and how far these are behind.",
    panels=(
        line(
            "Lag in records",
            "The ten groups that are furthest behind.",
            "short",
            ("topk(10, max by (group) (kafka_consumergroup_group_sum_lag))", "{{group}}"),
        ),
        line(
            "Lag in time",
            "Age of the next record that a group has not read.",
            "s",
            ("topk(10, max by (group) (kafka_consumergroup_group_max_lag_seconds))", "{{group}}"),
        ),
        line(
            "Until records are lost",
            "Time until retention takes the next record that a group has not read. Make the group faster, or raise "
            "retention.ms of the topic.",
            "s",
            (
                "bottomk(10, min by (group, topic) (kafka_consumergroup_group_expires_seconds))",
                "{{group}} {{topic}}",
            ),
        ),
        line(
            "Records already lost",
            "Deleted before the group read them. The value falls to 0 when the group commits again.",
            "short",
            (
                "topk(10, sum by (group, topic) (kafka_consumergroup_group_lost) > 0)",
                "{{group}} {{topic}}",
            ),
        ),
        line(
            "Records without a committed offset",
            "In partitions of a group's topics in which it has committed nothing. A group that starts at the earliest "
            "record will read them; a group that starts at the latest record will not.",
            "short",
            (
                "topk(10, kafka_consumergroup_group_uncommitted_lag > 0)",
                "{{group}} {{topic}}",
            ),
        ),
        line(
            "Partitions by group and status",
            "Burrow's: 1 OK, 2 WARN (behind and growing), 4 STOP (commits nothing), 5 STALL (commits the same), "
            "6 REWIND. 7: LOST, records were deleted unread. 8: AHEAD, committed beyond the log's end. 9: REPLACED, "
            "committed in a deleted topic of the same name.",
            "short",
            (
                'count_values by (group) ("status", kafka_consumergroup_group_status > 1)',
                "{{group}}: {{status}}",
            ),
        ),
        line(
            "Groups by state",
            "Many in PreparingRebalance for long: members do not come back to their rebalance.",
            "short",
            ("sum by (state) (kafscale_coordinator_groups)", "{{state}}"),
        ),
        line(
            "Rebalances",
            "New generations and epochs. A steady rate: members time out (max.poll.interval.ms) or restart.",
            "ops",
            (rate("kafscale_coordinator_rebalances_total"), "rebalances"),
        ),
        *requests_of("coordinator"),
        line(
            "Slots",
            "Of 64 in total, by instance; lost slots were claimed by another instance while this process was blocked.",
            "short",
            ("sum by (instance) (kafscale_coordinator_slots)", "{{instance}}"),
            ("sum(increase(kafscale_coordinator_slots_lost_total[$__rate_interval]))", "lost"),
        ),
        line(
            "Commits, p99",
            "Of groups' state and offsets to etcd; unknown outcomes are asked again.",
            "s",
            (quantile(0.99, "kafscale_coordinator_commit_seconds"), "commit"),
        ),
        line(
            "Transactions",
            "Decisions by their cause (timeout: the producer is gone; fence: another one has taken its place). Many "
            "ends that are sent again: a partition's owner or a group's coordinator cannot end what is decided.",
            "ops",
            (
                rate("kafscale_coordinator_transactions_decided_total", "outcome, cause"),
                "{{outcome}}, {{cause}}",
            ),
            (
                rate("kafscale_coordinator_transaction_ends_total", "answer", '{answer=~"later|failed"}'),
                "ends {{answer}}",
            ),
        ),
        line(
            "Oldest decided transaction",
            "That is not ended everywhere. Above half a minute: see KafscaleTransactionNotEnded.",
            "s",
            (
                "max by (instance) (kafscale_coordinator_transactions_closing_oldest_seconds)",
                "{{instance}}",
            ),
        ),
        line(
            "Not readable",
            "Groups and transactional ids whose record this version cannot read: a newer version wrote it, or it is "
            "damaged. The log names them.",
            "short",
            ("sum(kafscale_coordinator_groups_unreadable)", "groups"),
            ("sum(kafscale_coordinator_transactional_ids_unreadable)", "transactional ids"),
            ("sum(increase(kafscale_coordinator_offsets_unreadable_total[$__rate_interval]))", "offsets"),
            (
                "sum(increase(kafscale_coordinator_commits_unknown_total[$__rate_interval]))",
                "unknown commits",
            ),
        ),
        *process_of("coordinator"),
    ),
)

UPKEEP: Final = Dashboard(
    uid="kafscale-upkeep",
    title="KafScale: upkeep and the store",
    text="Retention, compaction, orphans and samples of lag.",
    panels=(
        line(
            "Who works",
            "One of the instances. None: nothing expires and nothing is compacted.",
            "short",
            ("sum by (instance) (kafscale_upkeep_working)", "{{instance}}"),
        ),
        line(
            "Time since the last successful run",
            "By task; above twice its interval: look at its failures and at the log of who works.",
            "s",
            ("time() - max by (task) (kafscale_upkeep_last_run_timestamp_seconds)", "{{task}}"),
        ),
        line(
            "Failures",
            "By task; each says why in the log and is tried again.",
            "short",
            ("sum by (task) (increase(kafscale_upkeep_failures_total[$__rate_interval]))", "{{task}}"),
        ),
        line(
            "Duration, p99",
            "Of successful runs.",
            "s",
            (quantile(0.99, "kafscale_upkeep_run_seconds", "task"), "{{task}}"),
        ),
        line(
            "Freed by retention",
            "Bytes of deleted segments with their indexes.",
            "Bps",
            (rate("kafscale_upkeep_retention_deleted_bytes_total"), "freed"),
        ),
        line(
            "Deleted",
            "Segments by retention, objects that nothing named, and deletions that failed and are tried again.",
            "ops",
            (rate("kafscale_upkeep_retention_deleted_segments_total"), "segments"),
            (rate("kafscale_upkeep_orphans_deleted_objects_total"), "orphans"),
            (rate("kafscale_upkeep_retention_failed_deletes_total"), "failed, retention"),
            (rate("kafscale_upkeep_compaction_failed_deletes_total"), "failed, compaction"),
            (rate("kafscale_upkeep_log_starts_moved_total"), "log starts moved"),
        ),
        line(
            "Compaction",
            "Bytes before and after; logs gone through.",
            "Bps",
            (rate("kafscale_upkeep_compaction_bytes_before_total"), "before"),
            (rate("kafscale_upkeep_compaction_bytes_after_total"), "after"),
        ),
        line(
            "Compaction behind",
            "How late the oldest dirty record was, and the longest log: raise KAFSCALE_COMPACTION_IO_BYTES_PER_S.",
            "s",
            ("max(kafscale_upkeep_compaction_delay_seconds)", "late"),
            ("max(kafscale_upkeep_compaction_longest_seconds)", "longest log"),
        ),
        line(
            "Needs attention",
            "Logs that compaction or retention cannot handle, and objects in topics' trees with unknown names.",
            "short",
            ("sum by (reason) (kafscale_upkeep_uncleanable_partitions)", "uncleanable: {{reason}}"),
            ("max(kafscale_upkeep_retention_missed_logs)", "passed over by retention"),
            ("max(kafscale_upkeep_strange_objects)", "strange objects"),
        ),
        line(
            "Lag history",
            "Rows written and files expired. Series left out: more partitions than a scrape should carry; the numbers "
            "by group are whole.",
            "short",
            (rate("kafscale_upkeep_lag_samples_total"), "rows per second"),
            (rate("kafscale_upkeep_lag_files_expired_total"), "files expired per second"),
            ("max(kafscale_upkeep_lag_left_out_series)", "series left out"),
        ),
        *process_of("upkeep"),
    ),
)
