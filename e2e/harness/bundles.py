"""Settings for the write path: bundles that live as short as they can, and none at all."""

from __future__ import annotations

import subprocess
from typing import Final

from e2e.harness.cluster import KAFSCALE, Cluster

SETTLE_TIMEOUT_S: Final = 120.0
SETTLE_MS: Final = 1_500
GRACE_MS: Final = 1_000
SEGMENTS: Final = {"KAFSCALE_BUNDLE_DIRECT_BYTES": "1"}
"""Each request is a segment of its own, so a short test sees many segments, checkpoints and manifests."""
SEGMENTS_OF_TOPIC: Final = {"internal.segment.bytes": "1"}
"""The same, as a config of a topic."""
BUNDLES: Final = {
    "KAFSCALE_SETTLE_MS": str(SETTLE_MS),
    "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
    "KAFSCALE_BUNDLES_EVERY_MS": "1000",
    "KAFSCALE_BUNDLES_MIN_AGE_MS": "1000",
    "KAFSCALE_BUNDLES_UNCOMMITTED_KEEP_MS": "1000",
}
"""The instance that wrote a bundle deletes it `GRACE_MS` after it is dead; the sweep waits as long."""


def settle(cluster: Cluster, *topics: str) -> None:
    """After it the records of the topics are in segments (without a name: of all topics)."""
    line = [*KAFSCALE, "settle", *topics, "--data-dir", str(cluster.data_dir)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=SETTLE_TIMEOUT_S, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
