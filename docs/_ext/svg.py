"""Charts as SVG that take their colours and font from the page, so they follow its theme.

A Plotly figure brings a script of megabytes and colours of its own; these are lines and text. The
classes (``line c0``, ``axis``, ``label``) have their looks in docs/_static/site.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

SMALL = 500  # units: what is no wider is readable on a phone


def text(x: float, y: float, words: str, kind: str = "label", anchor: str = "middle") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(words)}</text>'


def number(value: float) -> str:
    """With a true minus sign."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis") -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def box(
    x: float, y: float, width: float, height: float, kind: str = "box", round_: float = 6
) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}" rx="{round_:g}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def circle(x: float, y: float, radius: float, kind: str = "node") -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A straight arrow with its head at the second point."""
    turn, size = np.arctan2(y2 - y1, x2 - x1), 7.0
    ends = [(x2 - size * np.cos(turn + a), y2 - size * np.sin(turn + a)) for a in (0.45, -0.45)]
    head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *ends])
    return line(x1, y1, x2, y2, "arrow") + f'<polygon class="head" points="{head}"/>'


def drawing(width: float, height: float, parts: Sequence[str], alt: str) -> str:
    """A whole picture; ``alt`` is what it tells those who do not see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" style="max-width: {width:g}px"'
    label = escape(alt, quote=True)
    kind = "picture" if width > SMALL else "picture small"
    return f'<svg class="{kind}" {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'


@dataclass
class Chart:
    """Curves in a frame: ``left``, ``top`` and the size of the frame in the picture."""

    left: float
    top: float
    width: float
    height: float
    xs: tuple[float, float]
    ys: tuple[float, float]
    parts: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        (x0, x1), (y0, y1) = self.xs, self.ys
        return (
            self.left + self.width * (x - x0) / (x1 - x0),
            self.top + self.height * (y1 - y) / (y1 - y0),
        )

    def frame(
        self,
        title: str,
        xticks: Sequence[float],
        yticks: Sequence[float],
        xlabel: str = "",
    ) -> Chart:
        """Axes with ticks; the line y = 0 is drawn a little stronger."""
        for y in yticks:
            a, b = self.at(self.xs[0], y), self.at(self.xs[1], y)
            self.parts += [line(*a, *b, "zero" if y == 0 else "grid")]
            self.parts += [text(self.left - 6, a[1] + 4, number(y), "tick", "end")]
        bottom = self.top + self.height
        for x in xticks:
            place = self.at(x, self.ys[0])[0]
            self.parts += [line(place, bottom, place, bottom + 4)]
            self.parts += [text(place, bottom + 17, number(x), "tick")]
        self.parts += [line(self.left, bottom, self.left + self.width, bottom)]
        if title:
            self.parts += [text(self.left + self.width / 2, self.top - 9, title, "title")]
        if xlabel:
            self.parts += [text(self.left + self.width / 2, bottom + 36, xlabel)]
        return self

    def curve(self, xs: np.ndarray, ys: np.ndarray, color: int, kind: str = "line") -> Chart:
        """A line of values; what lies outside the frame is cut at its edge."""
        low, high = self.ys
        inside = np.clip(np.asarray(ys, float), low, high)
        points = [self.at(float(x), float(y)) for x, y in zip(xs, inside, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{kind} c{color}" points="{path}"/>')
        return self

    def area(self, xs: np.ndarray, ys: np.ndarray, color: int) -> Chart:
        """A filled curve above y = 0."""
        points = [self.at(float(x), float(y)) for x, y in zip(xs, ys, strict=True)]
        points += [self.at(float(xs[-1]), 0.0), self.at(float(xs[0]), 0.0)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon class="area c{color}" points="{path}"/>')
        return self


def legend(
    names: Sequence[str], left: float, top: float, step: float = 90, first: int = 0
) -> list[str]:
    """Names beside the lines of their colours, in a row."""
    parts = []
    for i, name in enumerate(names):
        x = left + i * step
        parts += [f'<line class="line c{first + i}" x1="{x}" y1="{top}" x2="{x + 20}" y2="{top}"/>']
        parts += [text(x + 26, top + 4, name, "label", "start")]
    return parts
