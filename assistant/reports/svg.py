"""Draw a chart as SVG: a band from lowest to highest, the mean as a curve, and gaps as gaps.

Text is escaped; colours come from the style sheet.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from html import escape

from gpudeck.assistant.reports.report import Chart, Curve
from gpudeck.assistant.reports.style import LIGHT

WIDTH, HEIGHT = 760, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 8, 22
_COLOURS = len(LIGHT.series)


def draw_svg(chart: Chart, style: str = "") -> str:
    """Return the drawing of a chart, WIDTH by HEIGHT.

    `style`: rules of its own, for a reader without a style sheet around it.
    """
    scale = Scale(chart)
    parts = [*_grid(chart, scale)]
    for i, line in enumerate(chart.lines):
        parts += _curve(line, i % _COLOURS, scale)
    own = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(chart.heading)}">'
        f"{own}{''.join(parts)}</svg>"
    )


class Scale:
    """Convert times and values to points of the drawing."""

    def __init__(self, chart: Chart) -> None:
        highest = max(
            (v for line in chart.lines for v in (*line.high, *line.mean) if v is not None),
            default=0.0,
        )
        self.top = (
            chart.top if chart.top is not None and highest <= chart.top else axis_end(highest)
        )
        self._since, self._length = chart.since, max(chart.until - chart.since, 1e-3)

    def x(self, at: float) -> float:
        """Return the horizontal place of a time."""
        share = min(max((at - self._since) / self._length, 0.0), 1.0)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        return round(
            HEIGHT - _BOTTOM - min(max(value / self.top, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM), 1
        )


def _grid(chart: Chart, scale: Scale) -> Iterator[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    for value in axis_values(scale.top):
        y = scale.y(value)
        yield f'<path class="{"grid" if value else "axis"}" d="M{_LEFT} {y}H{right}"/>'
        yield _text(_LEFT - 6, y + 4, "end", f"{value:g}")
    for at, label in axis_moments(chart.since, chart.until):
        x = scale.x(at)
        yield f'<path class="axis" d="M{x} {bottom}v4"/>'
        yield _text(x, HEIGHT - 5, "middle", label) if _LEFT + 12 < x < right - 20 else ""


def _text(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text class="tick" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _curve(line: Curve, colour: int, scale: Scale) -> Iterator[str]:
    for part in _parts(line):
        xs = [scale.x(line.times[i]) for i in part]
        mean = [scale.y(v) for i in part if (v := line.mean[i]) is not None]
        if len(part) == 1:
            yield f'<circle class="d{colour}" cx="{xs[0]:g}" cy="{mean[0]:g}" r="1.6"/>'
            continue
        low, high = (_place(column, line.mean, part, scale) for column in (line.low, line.high))
        if low != high:
            outline = [*zip(xs, high, strict=True), *reversed([*zip(xs, low, strict=True)])]
            yield f'<path class="b{colour}" d="M{_points(outline)}Z"/>'
        yield f'<path class="l{colour}" d="M{_points([*zip(xs, mean, strict=True)])}"/>'


def _parts(line: Curve) -> Iterator[list[int]]:
    """Yield the runs of buckets that have a value."""
    run: list[int] = []
    for i, value in enumerate(line.mean):
        if value is not None:
            run.append(i)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _place(
    column: Sequence[float | None], mean: Sequence[float | None], part: Sequence[int], scale: Scale
) -> list[float]:
    return [scale.y(v if (v := column[i]) is not None else (mean[i] or 0.0)) for i in part]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:g} {y:g}" for x, y in points)


_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
    172800,
    432000,
    864000,
)
_DAY = 86400
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def axis_values(top: float, most: int = 4) -> list[float]:
    """Return round values from 0 to `top`, in at most `most` steps; `top` is above 0."""
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in _NICE if n * power >= rough * (1 - 1e-9))
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def axis_end(highest: float) -> float:
    """Return the end of an axis that shows `highest`: a round value above it; 1 if there is nothing
    to show.
    """
    if not 0 < highest < math.inf:
        return 1.0
    ticks = axis_values(highest * 1.05)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else highest
    return step * math.ceil(highest * 1.05 / step - 1e-9)


def axis_moments(since: float, until: float, most: int = 6) -> list[tuple[float, str]]:
    """Return round local times, in at most `most` steps, with their labels; midnight is labelled by
    date.
    """
    length = max(until - since, 1.0)
    step = next((s for s in _STEPS_S if length / s <= most), math.ceil(length / most / _DAY) * _DAY)
    zone = time.localtime(since).tm_gmtoff
    first = math.ceil((since + zone) / step) * step - zone
    return [(at, _label(at, step)) for at in _from(first, step, until)]


def _from(first: float, step: float, until: float) -> Sequence[float]:
    return (
        [first + i * step for i in range(int((until - first) / step + 1e-9) + 1)]
        if first <= until
        else []
    )


def _label(at: float, step: float) -> str:
    local = time.localtime(at)
    if step >= _DAY or (step >= 60 and local.tm_hour == local.tm_min == 0):
        return f"{local.tm_mday} {time.strftime('%b', local)}"
    return time.strftime("%H:%M:%S" if step < 60 else "%H:%M", local)
