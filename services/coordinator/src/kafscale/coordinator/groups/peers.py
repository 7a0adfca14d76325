"""Where a member is, as DescribeGroups shows it."""

from __future__ import annotations

from kafscale.runtime.stream.frame import RequestMeta


def client_host(meta: RequestMeta) -> str:
    """Java's way to print an address: a slash, then the host without its port."""
    return "/" + (meta.peer or "").rpartition(":")[0]
