"""Puts this folder's own modules (access_values, naive_authorizer) within reach of its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
