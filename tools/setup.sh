#!/bin/sh
# Makes .venv from the lock files: `tools/setup.sh run` for the product alone, `tools/setup.sh dev`
# with everything that tests need. `spark` and `spark-dev` make spark/engine/.venv in the same way.
# Does nothing when the environment is current.
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

case $kind in
    run | dev)
        home=.venv locks="requirements.lock" dev=dev
        members="libs/wire libs/access libs/storage libs/runtime services/* cli spark/lake spark/upkeep" ;;
    spark | spark-dev)
        home=spark/engine/.venv locks="spark/engine/requirements.lock" dev=spark-dev
        members="libs/wire libs/access libs/storage libs/runtime spark/lake spark/engine" ;;
    *) fail "run, dev, spark or spark-dev" ;;
esac
if [ "$kind" = "$dev" ]; then
    locks="$locks ${locks%.lock}-dev.lock" members="$members libs/testkit"
fi
# shellcheck disable=SC2086 -- the list is meant to be split
want=$(cat $locks libs/*/pyproject.toml services/*/pyproject.toml cli/pyproject.toml spark/*/pyproject.toml tools/setup.sh | cksum)
stamp=$home/.kafscale-$kind
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi
if [ "$kind" != "$dev" ] && [ -f "$home/.kafscale-$dev" ]; then
    # A development environment holds everything; renew it as one.
    exec "$0" "$dev"
fi

echo "setup: making $home ($kind), once; this takes a minute or so" >&2
# An environment that uv made has no pip; venv adds it to what is there.
$home/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv $home
[ -x $home/bin/uv ] || $home/bin/python -m pip install --quiet --disable-pip-version-check "$(sed -n 's/^# installer: //p' requirements.lock)" ||
    fail "pip could not install the installer; is the package index reachable?"
set -- --quiet
for lock in $locks; do set -- "$@" -r "$lock"; done
VIRTUAL_ENV=$PWD/$home $home/bin/uv pip install --require-hashes "$@" || fail "the locked packages could not be installed"
set --
for member in $members; do set -- "$@" -e "./$member"; done
VIRTUAL_ENV=$PWD/$home $home/bin/uv pip install --quiet --no-deps "$@" || fail "the workspace could not be installed"
printf '%s' "$want" > "$stamp"
