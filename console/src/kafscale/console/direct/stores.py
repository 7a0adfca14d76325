"""What reads etcd and the object store of the cluster: processes of their own, which open them.

Law: what is read here was not checked by the front door. A handler cuts it by the rights of the login (`Call.seen`),
or its route needs a right on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafscale.console.direct.children import Children
from kafscale.console.direct.lag import LagReports

if TYPE_CHECKING:
    from kafscale.operations.target import Target


class Stores:
    def __init__(self, target: Target) -> None:
        self.lag = LagReports(target)
        self.children = Children(target)

    async def close(self) -> None:
        await self.lag.close()
        await self.children.close()
