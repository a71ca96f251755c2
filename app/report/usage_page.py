"""Write what jobs used as a page of HTML that loads nothing from anywhere."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from gpudeck.app.format.usage import UsageRow, work_share
from gpudeck.app.format.values import NOT_AVAILABLE
from gpudeck.assistant.reports.style import DARK, LIGHT, Colours
from gpudeck.language.numbers import energy

_HEADINGS = ("User", "Jobs", "Succeeded", "GPU-hours", "", "Busy", "CPU-hours", "Energy")


def usage_page(
    rows: Sequence[UsageRow], verdicts: Callable[[UsageRow], Iterable[str]], now: float
) -> str:
    """Return the page: a table for each period, the newest first.

    Args:
        rows: What was used, the newest period first.
        verdicts: Returns the sentences about the usage of one person.
        now: Seconds since the epoch.
    """
    host, made = escape(socket.gethostname()), time.strftime("%Y-%m-%d", time.localtime(now))
    periods = "".join(
        _period(name, list(found), verdicts)
        for name, found in groupby(rows, lambda row: row.period)
    )
    return f"""\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>GPU usage of {host}</title>
<style>{_style()}</style>
<h1>GPU usage of {host}</h1>
<p>By user and the time in which the jobs ended. Written on {made} by GPU Deck.</p>
{periods or "<p>No job has ended in this time.</p>"}
</html>
"""


def _period(
    name: str, rows: Sequence[UsageRow], verdicts: Callable[[UsageRow], Iterable[str]]
) -> str:
    most = max(row.gpu_hours for row in rows)
    known = [row.joules for row in rows if row.joules is not None]
    total = UsageRow(
        name, "All", sum(row.jobs for row in rows), sum(row.succeeded for row in rows),
        sum(row.gpu_hours for row in rows), sum(row.cpu_hours for row in rows),
        sum(known) if known else None,
        sum(row.read_hours for row in rows), sum(row.worked_hours for row in rows),
    )  # fmt: skip
    head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
    lines = "".join(_line(row, most) for row in sorted(rows, key=lambda r: -r.gpu_hours))
    told = "".join(f"<p>{escape(text)}</p>" for row in rows for text in verdicts(row))
    return (
        f"<h2>{name}</h2><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{lines}</tbody><tfoot>{_line(total, 0.0)}</tfoot></table>{told}"
    )


def _line(row: UsageRow, most: float) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row, most))}</tr>"


def _cells(row: UsageRow, most: float) -> Iterator[str]:
    share = 100 * row.gpu_hours / most if most else 0.0
    yield escape(row.user)
    yield str(row.jobs)
    yield str(row.succeeded)
    yield f"{row.gpu_hours:.1f}"
    yield f'<i style="width:{share:.1f}%"></i>' if share else ""
    yield work_share(row)
    yield f"{row.cpu_hours:.1f}"
    yield NOT_AVAILABLE if row.joules is None else energy(row.joules)


def _style() -> str:
    return f"""
:root {{ {_variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}
body {{ max-width: 56rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif;
       background: var(--window); color: var(--text) }}
p {{ color: var(--muted) }}
table {{ width: 100%; border-collapse: collapse; background: var(--surface) }}
th, td {{ padding: .35rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
         font-variant-numeric: tabular-nums }}
th {{ color: var(--muted); font-weight: 500 }}
th:first-child, td:first-child {{ text-align: left }}
td:nth-child(5) {{ width: 30% }}
tfoot td {{ font-weight: 600 }}
i {{ display: block; height: .6rem; border-radius: 2px; background: var(--bar) }}
"""


def _variables(colours: Colours) -> str:
    named = {
        "window": colours.window, "surface": colours.surface, "line": colours.line,
        "text": colours.text, "muted": colours.muted, "bar": colours.series[0],
    }  # fmt: skip
    return "; ".join(f"--{name}: {colour}" for name, colour in named.items())
