#!/bin/sh
# Makes .venv from the lock files: `tools/setup.sh run` for the product alone, `tools/setup.sh dev`
# with everything that tests need. Does nothing when the environment is current.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-run}

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

python=""
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is missing. On Debian: apt-get install python3 python3-venv"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make virtual environments. On Debian: apt-get install python3-venv"

locks="requirements.lock"
[ "$kind" = dev ] && locks="requirements.lock requirements-dev.lock"
# shellcheck disable=SC2086 -- the list is meant to be split
want=$(cat $locks libs/*/pyproject.toml services/*/pyproject.toml cli/pyproject.toml spark/*/pyproject.toml tools/setup.sh | cksum)
stamp=.venv/.kafscale-$kind
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi
if [ "$kind" = run ] && [ -f .venv/.kafscale-dev ]; then
    # A development environment holds everything; renew it as one.
    exec "$0" dev
fi

echo "setup: making .venv ($kind), once; this takes a minute or so" >&2
# An environment that uv made has no pip; venv adds it to what is there.
.venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check "$(sed -n 's/^# installer: //p' requirements.lock)" ||
    fail "pip could not install the installer; is the package index reachable?"
set -- --quiet
for lock in $locks; do set -- "$@" -r "$lock"; done
VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install --require-hashes "$@" || fail "the locked packages could not be installed"
set --
for member in libs/wire libs/storage libs/rpc libs/runtime services/* cli spark/lake spark/upkeep; do set -- "$@" -e "./$member"; done
[ "$kind" = dev ] && set -- "$@" -e ./libs/testkit
VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install --quiet --no-deps "$@" || fail "the workspace could not be installed"
printf '%s' "$want" > "$stamp"
