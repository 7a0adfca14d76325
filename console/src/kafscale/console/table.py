"""All routes of the console: one line for each screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kafscale.console.api import (
    acls,
    batch,
    cost,
    group_reset,
    groups,
    overview,
    produce,
    quotas,
    records,
    redrive,
    search,
    session,
    sql,
    storage,
    tail,
    topic_changes,
    topics,
    transactions,
    users,
)
from kafscale.console.routes import Route

ROUTES: Final[Sequence[Route]] = (
    *session.ROUTES,
    *overview.ROUTES,
    *topics.ROUTES,
    *topic_changes.ROUTES,
    *records.ROUTES,
    *batch.ROUTES,
    *tail.ROUTES,
    *produce.ROUTES,
    *redrive.ROUTES,
    *groups.ROUTES,
    *group_reset.ROUTES,
    *users.ROUTES,
    *acls.ROUTES,
    *quotas.ROUTES,
    *transactions.ROUTES,
    *sql.ROUTES,
    *search.ROUTES,
    *storage.ROUTES,
    *cost.ROUTES,
)


def served(*, read_only: bool, direct: bool) -> list[Route]:
    """The rows of which the router is built. Law S3: with `read_only` no row that changes something exists."""
    return [row for row in ROUTES if not (read_only and row.changes) and (direct or not row.direct)]
