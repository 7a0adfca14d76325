#!/bin/sh
# Makes .venv from the lock files: `tools/setup.sh run` for the product alone, `tools/setup.sh dev`
# with everything that tests need. `spark` and `spark-dev` make spark/engine/.venv in the same way.
# Does nothing when the environment is current.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-run}

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

case $kind in
    run | dev)
        home=.venv locks="requirements.lock" dev=dev
        members="libs/wire libs/access libs/storage libs/log libs/runtime libs/client libs/operations services/* console cli spark/lake spark/upkeep" ;;
    spark | spark-dev)
        home=spark/engine/.venv locks="spark/engine/requirements.lock" dev=spark-dev
        members="libs/wire libs/access libs/storage libs/log libs/runtime spark/lake spark/engine" ;;
    *) fail "run, dev, spark or spark-dev" ;;
esac
if [ "$kind" = "$dev" ]; then
    locks="$locks ${locks%.lock}-dev.lock" members="$members libs/testkit"
fi
# shellcheck disable=SC2086 -- the list is meant to be split
want=$(cat $locks libs/*/pyproject.toml services/*/pyproject.toml console/pyproject.toml cli/pyproject.toml spark/*/pyproject.toml tools/setup.sh | cksum)
stamp=$home/.kafscale-$kind
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then exit 0; fi
if [ "$kind" != "$dev" ] && [ -f "$home/.kafscale-$dev" ]; then
    # A development environment holds everything; renew it as one.
    exec "$0" "$dev"
fi

# Every Python in the PATH that can make an environment, the newest first. PYTHON names others.
pythons() {
    for name in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
        case $name in */*) folders=${name%/*} ;; *) folders=$(printf '%s' "$PATH" | tr ':' ' ') ;; esac
        for folder in $folders; do
            if "$folder/${name##*/}" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
                printf '%s\n' "$folder/${name##*/}"
            fi
        done
    done
}

# Whether a Python was built with profile-guided optimisation. Debian's are, but do not say so: its build asks make for
# it, not configure. Debian's patches are recognized by the scheme for system packages.
optimised() {
    "$1" -c 'import sys, sysconfig
said = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
sys.exit(not said and "deb_system" not in sysconfig.get_scheme_names())'
}

echo "setup: making $home ($kind), once; this takes a minute or so" >&2
# An environment that uv made has no pip; venv adds it to what is there.
if ! $home/bin/python -m pip --version >/dev/null 2>&1; then
    found=$(pythons)
    [ -n "$found" ] || fail "Python 3.11 or newer with venv is missing. On Debian: apt-get install python3 python3-venv"
    python=$(printf '%s\n' "$found" | while read -r each; do if optimised "$each"; then echo "$each"; break; fi; done)
    python=${python:-$(printf '%s\n' "$found" | head -n 1)}
    echo "setup: with $python ($("$python" -V 2>&1)); PYTHON=… names another" >&2
    "$python" -m venv $home
fi
optimised $home/bin/python || printf 'setup: %s was built without profile-guided optimisation and needs a tenth more CPU. %s\n' \
    "$(readlink -f $home/bin/python)" "Debian's python3 has it: install it, and remove $home" >&2
[ -x $home/bin/uv ] || $home/bin/python -m pip install --quiet --disable-pip-version-check "$(sed -n 's/^# installer: //p' requirements.lock)" ||
    fail "pip could not install the installer; is the package index reachable?"
set -- --quiet
for lock in $locks; do set -- "$@" -r "$lock"; done
# Without bytecode each process would compile what it imports, which takes longer than the rest of its start.
VIRTUAL_ENV=$PWD/$home $home/bin/uv pip install --require-hashes --compile-bytecode "$@" || fail "the locked packages could not be installed"
set --
for member in $members; do set -- "$@" -e "./$member"; done
VIRTUAL_ENV=$PWD/$home $home/bin/uv pip install --quiet --no-deps "$@" || fail "the workspace could not be installed"
set --
for member in $members; do set -- "$@" "$member/src"; done
$home/bin/python -m compileall -q "$@"
printf '%s' "$want" > "$stamp"
