#!/bin/sh
# Renews requirements.lock (what the product runs on) and requirements-dev.lock (what is added for
# tests), and the same of spark/engine. They carry versions and hashes and no address, so that any package index serves.
set -eu
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
$uv lock --quiet
export_lock() { $uv export --quiet --frozen --no-emit-workspace --no-annotate --no-header --format requirements-txt "$@"; }
{ echo "# installer: uv==$($uv --version | cut -d' ' -f2)"; export_lock --no-dev; } > requirements.lock
export_lock --only-group dev > requirements-dev.lock

cd spark/engine
uv=$(command -v "$uv" || echo "../../$uv")
$uv lock --quiet
export_spark() { $uv export --quiet --frozen --no-emit-local --no-annotate --no-header --format requirements-txt "$@"; }
{ echo "# installer: uv==$($uv --version | cut -d' ' -f2)"; export_spark --no-dev; } > requirements.lock
export_spark --only-group dev > requirements-dev.lock
