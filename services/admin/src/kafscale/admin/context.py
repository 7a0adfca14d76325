"""What every handler of this service is given."""

from __future__ import annotations

from dataclasses import dataclass

from kafscale.admin.log_starts import LogStarts
from kafscale.admin.settings import AdminSettings
from kafscale.admin.sizes import Sizes
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import Clock
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership import LiveView
from kafscale.storage.topics import TopicsView
from kafscale.storage.views import PrefixView


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    settings: AdminSettings
    clock: Clock
    keys: Keyspace
    cluster_id: str
    topics: TopicsView
    store: TopicStore
    log_starts: LogStarts
    front_doors: LiveView
    owners: PrefixView[OwnerRecord]
    sizes: Sizes
