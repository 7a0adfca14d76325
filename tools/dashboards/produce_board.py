"""The dashboard of produce."""

from __future__ import annotations

from typing import Final

from tools.dashboards.boards import line, process_of, requests_of
from tools.dashboards.panels import Dashboard, quantile, rate

PRODUCE: Final = Dashboard(
    uid="kafscale-produce",
    title="KafScale: produce",
    text="From records to segments to commits, and who owns what.",
    panels=(
        *requests_of("produce"),
        line(
            "Committed bytes by topic",
            "The ten largest; as segments, so after the clients' compression.",
            "Bps",
            (f"topk(10, {rate('kafscale_produce_bytes_total', 'topic')})", "{{topic}}"),
        ),
        line(
            "Committed records by topic",
            "The ten largest.",
            "cps",
            (f"topk(10, {rate('kafscale_produce_records_total', 'topic')})", "{{topic}}"),
        ),
        line(
            "Flush, PUT and commit, p99",
            "A flush is from seal to commit: its PUTs, and then its commit. What grows names who is slow. Before its "
            "seal, a bundle waits for more requests.",
            "s",
            (quantile(0.99, "kafscale_produce_gather_seconds"), "wait before a bundle"),
            (quantile(0.99, "kafscale_produce_flush_seconds"), "flush"),
            (quantile(0.99, "kafscale_produce_put_seconds"), "PUT"),
            (quantile(0.99, "kafscale_produce_bundle_seconds"), "bundle"),
            (quantile(0.99, "kafscale_produce_commit_seconds"), "commit"),
        ),
        line(
            "Owned partitions",
            "By instance; even but for a partition or two. One without any takes no load: see whether it is READY.",
            "short",
            ("sum by (instance) (kafscale_produce_owned_partitions)", "{{instance}}"),
        ),
        line(
            "Claims and hand-overs",
            "By why a partition was claimed; they come with starts, stops and deaths, and end soon after.",
            "ops",
            (rate("kafscale_produce_claims_total", "grounds"), "claimed: {{grounds}}"),
            (rate("kafscale_produce_claims_lost_total"), "lost"),
            (rate("kafscale_produce_handoffs_total"), "handed over"),
        ),
        line(
            "Writers that gave up",
            "fenced: another owns the partition, which is right after a pause of this process and wrong if it lasts. "
            "foreign_object: a person must look, see docs/operations.md.",
            "ops",
            (rate("kafscale_produce_stepdowns_total", "reason"), "{{reason}}"),
        ),
        line(
            "PUTs and flushes",
            "Two PUTs are a flush. Unknown outcomes are asked again; many of them: the store or the network.",
            "ops",
            (rate("kafscale_produce_puts_total"), "PUTs"),
            (rate("kafscale_produce_puts_unknown_total"), "PUTs, outcome unknown"),
            (rate("kafscale_produce_flushes_total"), "flushes"),
            (rate("kafscale_produce_commits_unknown_total"), "commits, outcome unknown"),
            (rate("kafscale_produce_checkpoints_total"), "checkpoints"),
        ),
        line(
            "Pace of PUTs",
            "On a slow store or link the limit falls and PUTs wait: see KafscaleStoreUncertain in docs/operations.md.",
            "short",
            ("sum(kafscale_produce_puts_in_flight)", "in flight"),
            ("sum(kafscale_produce_puts_waiting)", "waiting"),
            ("min(kafscale_produce_puts_limit)", "least limit of an instance"),
            (rate("kafscale_produce_puts_limit_halved_total"), "halvings per second"),
        ),
        line(
            "Segment size, median",
            "Small segments cost PUTs: a longer linger or fewer partitions makes them larger.",
            "bytes",
            (quantile(0.5, "kafscale_produce_segment_bytes"), "segment or slice"),
            (quantile(0.5, "kafscale_produce_bundle_bytes"), "bundle"),
        ),
        line(
            "Waiting",
            "Partitions for commits of heads (KAFSCALE_HEAD_COMMITS_PER_S), old clients' requests for conversion.",
            "short",
            ("sum(kafscale_produce_head_tokens_waiting)", "for commits of heads"),
            ("sum(kafscale_produce_conversions_waiting)", "for conversion"),
        ),
        line(
            "Bundles",
            "Slices per bundle are partitions that share one PUT; requests per bundle share a flush.",
            "ops",
            (rate("kafscale_produce_bundle_bytes_count"), "bundles"),
            (rate("kafscale_produce_bundle_slices_sum"), "slices"),
            (rate("kafscale_produce_bundle_requests_sum"), "requests"),
            (rate("kafscale_produce_gathers_in_vain_total"), "waits in vain"),
        ),
        line(
            "Settled and repeated",
            "Slices that became segments, by where their bytes came from; and what slices repeat of older ones.",
            "Bps",
            (rate("kafscale_produce_settled_bytes_total", "source"), "settled from {{source}}"),
            (rate("kafscale_produce_folded_bytes_total"), "repeated"),
        ),
        line(
            "Oldest slice",
            "Far above KAFSCALE_SETTLE_MS: settling fails or is slow. See KafscaleSlicesNotSettled.",
            "s",
            ("max by (instance) (kafscale_produce_oldest_slice_seconds)", "{{instance}}"),
        ),
        line(
            "Oldest open transaction",
            "Above the longest timeout of producers: nobody ends it, and consumers of committed records wait. See "
            "KafscaleTransactionOpen.",
            "s",
            ("max by (instance) (kafscale_produce_oldest_open_transaction_seconds)", "{{instance}}"),
        ),
        line(
            "Slices that cannot be read",
            "Above nothing: committed records are damaged or gone. Run `kafscale fsck` at once.",
            "short",
            (
                "sum by (instance) (increase(kafscale_produce_unreadable_slices_total[$__rate_interval]))",
                "{{instance}}",
            ),
        ),
        line(
            "Time to take over, p99",
            "From the first request for an unowned partition until it is served.",
            "s",
            (quantile(0.99, "kafscale_produce_recovery_seconds"), "recovery"),
        ),
        *process_of("produce"),
    ),
)
