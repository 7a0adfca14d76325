"""The page of a run: its counts, the longest silence of each kind of fault, the timeline. No script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from e2e.chaos.timeline import Timeline

WIDTH: Final = 1_100
ROW: Final = 18
LABEL: Final = 260
CHART: Final = 120
STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --fault: #c2410c; --silence: #b91c1c; --line: #2563eb; --rule: #ccd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --fault: #fb923c; --silence: #f87171; --line: #60a5fa; --rule: #445; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
svg text { font-size: 11px; fill: var(--ink); }
.scroll { overflow-x: auto; } .good { color: #15803d; } .bad { color: var(--silence); }
"""


def page(timeline: Timeline, title: str, about: str) -> str:
    """`about`: what ran, in words."""
    verdict = (
        '<p class="good">No violation.</p>'
        if not timeline.violations
        else f'<p class="bad">{len(timeline.violations)} violations:</p><ul>'
        + "".join(f"<li><pre>{escape(law)}</pre></li>" for law in timeline.violations[:50])
        + "</ul>"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
        f"<h1>{escape(title)}</h1><p>{escape(about)} Seed {timeline.seed}.</p>{verdict}"
        f"<h2>What clients did</h2>{_counts(timeline)}"
        f"<h2>Faults, and the longest silence of each</h2>{_silences(timeline)}"
        f'<h2>Timeline</h2><div class="scroll">{_drawing(timeline)}</div>'
        f"<h2>Each fault</h2>{_each(timeline)}</html>"
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    heads = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _counts(timeline: Timeline) -> str:
    return _table(("operation", "count"), [(name, f"{count:,}") for name, count in timeline.counts.items()])


def _silences(timeline: Timeline) -> str:
    longest = timeline.longest_by_fault()
    kinds = timeline.faults_by_kind()
    rows = [
        (
            kind,
            str(kinds.get(kind, "")),
            f"{longest[kind].seconds:.1f} s" if kind in longest else "",
            longest[kind].client if kind in longest else "",
        )
        for kind in sorted({*kinds, *longest})
    ]
    return _table(("fault", "times", "longest silence", "of"), rows)


def _each(timeline: Timeline) -> str:
    rows = [
        (f"{fault.begin_s:.1f} s", "" if fault.end_s is None else f"{fault.end_s:.1f} s", fault.words)
        for fault in timeline.faults
    ]
    return _table(("from", "to", "what"), rows)


def _drawing(timeline: Timeline) -> str:
    """Records by second above, then a row for each kind of fault, with silences of a second or more below."""
    end_s = max(
        [
            1.0,
            *(at for at, _ in timeline.samples),
            *(fault.end_s or fault.begin_s for fault in timeline.faults),
        ]
    )
    scale = (WIDTH - LABEL) / end_s
    kinds = list(timeline.faults_by_kind())
    parts = [_rates(timeline, scale)]
    for row, kind in enumerate(kinds):
        y = CHART + 20 + row * ROW
        parts.append(f'<text x="0" y="{y + 12}">{escape(kind)}</text>')
        parts += [
            _bar(
                LABEL + fault.begin_s * scale,
                y + 3,
                ((fault.end_s or end_s) - fault.begin_s) * scale,
                "fault",
                fault.words,
            )
            for fault in timeline.faults
            if fault.kind == kind
        ]
    y = CHART + 20 + len(kinds) * ROW
    parts.append(f'<text x="0" y="{y + 12}">silences of a second or more</text>')
    parts += [
        _bar(
            LABEL + each.begin_s * scale,
            y + 3,
            each.seconds * scale,
            "silence",
            f"{each.client}: {each.seconds:.1f} s",
        )
        for each in timeline.silences
        if each.seconds >= 1
    ]
    height = y + ROW + 10
    box = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return f'<svg role="img" aria-label="timeline" {box}>{"".join(parts)}</svg>'


def _bar(x: float, y: float, width: float, kind: str, words: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{max(2.0, width):.1f}" height="{ROW - 6}" fill="var(--{kind})" '
        f'fill-opacity=".7"><title>{escape(words)}</title></rect>'
    )


def _rates(timeline: Timeline, scale: float) -> str:
    name = "records acknowledged"
    rates = [
        (later, (after[name] - before[name]) / (later - earlier))
        for (earlier, before), (later, after) in zip(timeline.samples, timeline.samples[1:], strict=False)
        if later > earlier
    ]
    top = max((rate for _, rate in rates), default=1.0) or 1.0
    points = " ".join(
        f"{LABEL + at * scale:.1f},{CHART - rate / top * (CHART - 20):.1f}" for at, rate in rates
    )
    return (
        f'<text x="0" y="{CHART}">records acknowledged per second</text><text x="0" y="20">top: {top:,.0f}</text>'
        f'<polyline points="{points}" fill="none" stroke="var(--line)" stroke-width="1.5"/>'
    )
