"""Puts this folder's own modules (wire_values, wire_oracles) within reach of its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
