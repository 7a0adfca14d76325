#!/usr/bin/env bash
# Runs pytest, and runs once more what failed: `tools/two_tries.sh PATH [what only the first try takes]`.
#
# Thousands of tests with real servers share one machine, and a machine that stalls for seconds can fail one of them.
# As in Apache Kafka's own build, such a test has a second try, alone. There is none if a law was broken (`keep` in
# e2e/harness/law.py): a lost record is a lost record. Failures in more files than FILES_MAX are no accident; those of one
# file may be one, as its tests may share what failed.
set -uo pipefail

FILES_MAX=3
path=$1
shift
export TWO_TRIES_CACHE=.pytest_cache/${path//\//-}
rm -rf "$TWO_TRIES_CACHE"
tests() { .venv/bin/pytest -q "$path" -o cache_dir="$TWO_TRIES_CACHE" "$@"; }
failed() { tests --last-failed --last-failed-no-failures none "$@"; }

tests "$@"
result=$?
if ((result != 1)); then # 1: all tests ran, and some failed
    exit "$result"
fi
if [ -e "$TWO_TRIES_CACHE/broken-law" ]; then
    echo "$path: a law was broken; there is no second try"
    exit 1
fi
files=$(failed --collect-only | grep '::' | cut -d: -f1 | sort -u | wc -l)
echo "$path: tests failed in $files files"
if ((files == 0 || files > FILES_MAX)); then
    exit 1
fi
failed || exit 1
echo "$path: passed at the second try; read the first failure above all the same"
