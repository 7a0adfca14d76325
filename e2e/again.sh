#!/usr/bin/env bash
# Runs once more what has just failed in `make e2e`: one scenario at a time, with servers of its own.
#
# Two thousand scenarios share one machine, and a machine that stalls for seconds can fail one of them. As in Apache
# Kafka's own build, such a test has a second try. There is none if a law was broken (`keep` in harness/law.py): a lost
# record is a lost record. More failures than FAILURES_MAX are no accident.
set -euo pipefail
cd "$(dirname "$0")/.."

FAILURES_MAX=3
failed() { .venv/bin/pytest -q e2e -o cache_dir="$E2E_CACHE" --last-failed --last-failed-no-failures none "$@"; }

if [ -e "$E2E_CACHE/broken-law" ]; then
    echo "e2e: a law was broken; there is no second try"
    exit 1
fi
count=$(failed --collect-only | grep -c '::' || true)
echo "e2e: $count tests failed"
if ((count == 0 || count > FAILURES_MAX)); then
    exit 1
fi
failed
echo "e2e: passed at the second try; read the first failure above all the same"
