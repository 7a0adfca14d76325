"""The picture of docs/performance.md: bars by system, one panel for each question that a newcomer asks. As SVG.

Laws: the same run gives the same bytes, so `make gen-check` can compare them. The bars' colours name the class of
durability, because a figure means little without it. The text is text, in the reader's own font.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.typing import RcKeyType

from bench.results import shown

WIDTH_INCHES: Final = 11.0
ROW_INCHES: Final = 3.1
RULES: Final[dict[RcKeyType, Any]] = {
    "svg.hashsalt": "kafscale",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """`fills`: by class of durability, in the order of the legend."""

    text: str
    fills: tuple[str, ...]


LIGHT: Final = Theme(text="#1f2328", fills=("#0969da", "#1a7f37", "#9a6700"))
DARK: Final = Theme(text="#e6edf3", fills=("#58a6ff", "#3fb950", "#d29922"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`fill`: the index of its class of durability. `value`: None if the run has not measured it."""

    name: str
    value: float | None
    fill: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    bars: Sequence[Bar]


def drawn(panels: Sequence[Panel], classes: Sequence[str], theme: Theme) -> str:
    """Two panels in a row, which share the names at its left, and the legend of the classes below."""
    with mpl.rc_context(RULES):
        rows = -(-len(panels) // 2)
        figure = Figure(figsize=(WIDTH_INCHES, ROW_INCHES * rows), layout="constrained")
        axes = figure.subplots(rows, 2, squeeze=False).flatten()
        for number, (panel, axis) in enumerate(zip(panels, axes, strict=False)):
            _draw(panel, axis, theme, named=number % 2 == 0)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        figure.legend(
            handles=[Patch(color=fill, label=name) for name, fill in zip(classes, theme.fills, strict=True)],
            loc="outside lower center",
            ncols=len(classes),
            frameon=False,
            labelcolor=theme.text,
        )
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _draw(panel: Panel, axis: Axes, theme: Theme, *, named: bool) -> None:
    known = [(bar.value or 0.0) for bar in panel.bars]
    rows = list(range(len(panel.bars)))
    bars = axis.barh(rows, known, height=0.7, color=[theme.fills[bar.fill] for bar in panel.bars])
    axis.bar_label(
        bars,
        labels=["not measured" if bar.value is None else shown((bar.value,)) for bar in panel.bars],
        padding=4,
        color=theme.text,
    )
    axis.set_yticks(rows, [bar.name if named else "" for bar in panel.bars], color=theme.text)
    axis.set_xlim(0, max(known, default=0.0) * 1.2 or 1.0)
    axis.invert_yaxis()
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.patch.set_alpha(0)
    axis.spines[:].set_visible(False)
    axis.set_title(panel.title, loc="left", color=theme.text, fontsize=12)
