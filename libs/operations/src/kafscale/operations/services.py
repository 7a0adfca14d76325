"""The services of a cluster, and what each does. Imports nothing, because every command line needs it."""

from __future__ import annotations

SERVICES = ("produce", "fetch", "coordinator", "admin", "frontdoor")
"""The services that clients need, in start order."""
UPKEEP = "upkeep"
ROLES = (*SERVICES, UPKEEP)
WHAT_THEY_DO = {
    "frontdoor": "Accepts connections of Kafka clients and routes each request to a service.",
    "produce": "Accepts records: assigns offsets, writes segments, commits.",
    "fetch": "Serves records to consumers.",
    "coordinator": "Coordinates consumer groups and hands out producer ids.",
    "admin": "Manages topics and configs, and answers metadata and admin requests.",
    UPKEEP: "Runs retention, compaction and lag samples; one instance works, others stand by.",
}
"""In the order of help texts, pages and dashboards."""
