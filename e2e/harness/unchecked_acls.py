"""Launches admin with ACLs although no service checks them, so that tools for ACLs can be tried.

The setting is refused (runtime/settings.py). Values that are copied are not validated.
"""

from __future__ import annotations

import sys

from kafscale.admin.server import build
from kafscale.admin.settings import AdminSettings
from kafscale.runtime.process import run_service
from kafscale.runtime.settings_load import load_settings

if __name__ == "__main__":
    settings = load_settings(AdminSettings, []).model_copy(update={"authorizer": "acl"})
    sys.exit(run_service("admin", settings, build))
