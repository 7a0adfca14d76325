"""Writes docs/attacks.md: each attack, the test that shows the defence, and the mutant that takes the defence out.

An attack is the field `attack` of a mutant. So each attack has a mutant, and `make mutants` sees that the test catches
it. Those rows name single tests.
"""

import sys
from collections.abc import Sequence
from typing import Final

from tools.generated import ROOT, write_or_check
from tools.mutants import Mutant, everything

PAGE: Final = ROOT / "docs" / "attacks.md"
GROUPS: Final = (
    "before a login",
    "TLS",
    "certificates",
    "passwords",
    "tokens",
    "after a login",
    "between processes",
    "stores",
    "web pages",
)
"""In the order of the page."""

HEAD: Final = """\
# Attacks

For each attack: the tests that show the defence, and the mutants without the defence that these tests catch. Written by
`tools/gen_attack_docs.py` from the rows with `attack` in `tools/mutants_*.toml`; do not edit.

`.venv/bin/python tools/mutants.py --attacks` plants these mutants, and `make mutants` plants all. Some attacks also
have a test at full size, which is too slow for every mutant:

- `e2e/scenarios/test_tls.py`: 5,000 silent connections; clients with every wrong kind of certificate.
- `e2e/scenarios/test_internal_tls.py`: forged principals, sent to the gRPC port of each service.
- `make login-timing`: 10,000 logins of known and of unknown users take the same time.
"""


def page(mutants: Sequence[Mutant]) -> str:
    parts = [HEAD]
    for group in GROUPS:
        rows = {
            m.attack: [o for o in mutants if o.attack == m.attack] for m in mutants if group_of(m) == group
        }
        parts.append(f"## {group[0].upper()}{group[1:]}\n")
        parts.append("| attack | tests | mutants |\n|---|---|---|")
        parts += [
            f"| {attack.partition(': ')[2]} | {_tests(own)} | {_names(own)} |"
            for attack, own in sorted(rows.items())
        ]
        parts.append("")
    return "\n".join(parts)


def group_of(mutant: Mutant) -> str:
    return mutant.attack.partition(": ")[0]


def _tests(mutants: Sequence[Mutant]) -> str:
    return "<br>".join(dict.fromkeys(_link(test) for mutant in mutants for test in mutant.tests.split()))


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name.removeprefix('test_').replace('_', ' ')}](../{file})"


def _names(mutants: Sequence[Mutant]) -> str:
    return "<br>".join(mutant.name for mutant in mutants)


def main() -> int:
    mutants = [mutant for mutant in everything() if mutant.attack]
    for mutant in mutants:
        assert group_of(mutant) in GROUPS, f"{mutant.name}: the page has no group {group_of(mutant)!r}"
        assert all("::" in test for test in mutant.tests.split()), f"{mutant.name}: name single tests"
    return write_or_check({PAGE: page(mutants)})


if __name__ == "__main__":
    sys.exit(main())
