"""Fixtures of the runtime's tests: a real etcd."""

import sys
from pathlib import Path

from kafscale.testkit.fixtures import etcd, etcd_server, keyspace

sys.path.insert(0, str(Path(__file__).parent))

__all__ = ["etcd", "etcd_server", "keyspace"]
