"""Writes docs/metrics.md from the places where metrics are made, so that none is forgotten.

    python tools/gen_metrics_docs.py [--check]

A metric is a call such as metrics.counter("name", "What it counts.") whose two first arguments are
texts; --check writes nothing and ends with 1 when the page is not current.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from kafscale.runtime.process_metrics import STREAM_TEXTS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "metrics.md"
RUNTIME = ROOT / "libs" / "runtime" / "src"
SERVICES = {
    **{
        name: ROOT / "services" / name / "src"
        for name in ("frontdoor", "produce", "fetch", "coordinator", "admin")
    },
    "upkeep": ROOT / "spark" / "upkeep" / "src",
}
KINDS = ("counter", "gauge", "histogram")

INTRODUCTION = """\
# Metrics

Every service answers `GET /metrics` at its `KAFSCALE_HTTP_LISTEN` in Prometheus' text format. Names are
`kafscale_<service>_<noun>_<unit>`; counters end in `_total`. Several worker processes of one front door answer as
one: counters and histograms are added up, gauges carry a `worker` label. This page is written by
`tools/gen_metrics_docs.py`.
"""


def kind_of(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            stem = name.removeprefix("watch_").removesuffix("s")
            return stem if stem in KINDS else None
        case _:
            return None


def metrics_in(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name, kind, text."""
    for source in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and (kind := kind_of(node)) is not None:
                match node.args[:2]:
                    case [ast.Constant(value=str(name)), ast.Constant(value=str(text))]:
                        yield name, kind, text


def rows(service: str, found: list[tuple[str, str, str]]) -> Iterator[str]:
    yield "| metric | kind | what it is |"
    yield "|---|---|---|"
    for name, kind, text in sorted(found):
        shown = f"{name.removesuffix('_total')}_total" if kind == "counter" else name
        yield f"| `kafscale_{service}_{shown}` | {kind} | {text.rstrip('.')}. |"


def page() -> str:
    shared = list(metrics_in(RUNTIME))
    shared += [(f"stream_{name}", "counter", f"{text} By kind.") for name, text in STREAM_TEXTS.items()]
    lines = [INTRODUCTION, "## Every service", "", *rows("<service>", shared)]
    for service, source in SERVICES.items():
        found = list(metrics_in(source))
        if found:
            lines += ["", f"## {service}", "", *rows(service, found)]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != text:
            print(f"{PAGE.relative_to(ROOT)} is not current: run tools/gen_metrics_docs.py")
            return 1
        return 0
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
