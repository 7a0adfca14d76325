"""Settings with which bundles live as short as they can, so that a short test sees all of their life."""

from __future__ import annotations

from typing import Final

SETTLE_MS: Final = 1_500
GRACE_MS: Final = 1_000
BUNDLES: Final = {
    "KAFSCALE_BUNDLES": "true",
    "KAFSCALE_SETTLE_MS": str(SETTLE_MS),
    "KAFSCALE_BUNDLE_GRACE_MS": str(GRACE_MS),
    "KAFSCALE_BUNDLES_EVERY_MS": "1000",
    "KAFSCALE_BUNDLES_MIN_AGE_MS": "1000",
}
"""The instance that wrote a bundle deletes it `GRACE_MS` after it is dead; the sweep waits as long."""
