"""Define how a report looks: the window's colours, light and dark, in one style sheet.

Nothing is loaded from anywhere.
"""

from __future__ import annotations

from typing import NamedTuple


class Colours(NamedTuple):
    """Name the colours, which a test compares with `gpudeck.app.widgets.theme`."""

    window: str
    surface: str
    line: str
    grid: str
    text: str
    muted: str
    series: tuple[str, ...]


LIGHT = Colours(
    "#f4f5f7",
    "#ffffff",
    "#dce0e5",
    "#eceef1",
    "#1b1f24",
    "#5b6572",
    ("#1f5fbf", "#c14908", "#0b6142", "#ad2a71", "#107c86", "#5d4e1d", "#4b1889", "#0e1723"),
)
DARK = Colours(
    "#121519",
    "#1a1e23",
    "#2c323a",
    "#262b32",
    "#e7eaee",
    "#9aa4b0",
    ("#6ea8fe", "#f0894a", "#3eb194", "#e58fc9", "#9bdcff", "#ffd63c", "#a875c9", "#c7e9ca"),
)
FONT = "system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', monospace"


def chart_rules(colours: Colours) -> str:
    """Return the style of charts in plain colours, for readers without CSS variables,
    such as Qt.
    """
    rules = [
        f".grid{{stroke:{colours.grid};stroke-width:1}}",
        f".axis{{stroke:{colours.line};stroke-width:1}}",
        f".tick{{fill:{colours.muted};font-size:11px}}",
    ]
    for i, colour in enumerate(colours.series):
        rules.append(
            f".l{i}{{stroke:{colour};fill:none;stroke-width:1.6}}"
            f".b{i}{{fill:{colour};fill-opacity:0.18}}.d{i}{{fill:{colour}}}"
        )
    return "".join(rules)


def sheet() -> str:
    """Return the style sheet of a page: light, dark if the reader's system is, and
    light on paper.
    """
    return (
        f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}"
        f"@media print{{:root{{{_variables(LIGHT)}}}}}" + chart_rules(_named()) + _PAGE
    )


def _variables(colours: Colours) -> str:
    plain = (f"--{name}:{getattr(colours, name)}" for name in Colours._fields if name != "series")
    return ";".join((*plain, *(f"--s{i}:{colour}" for i, colour in enumerate(colours.series))))


def _named() -> Colours:
    """Return the colours as CSS variables."""
    names = {name: f"var(--{name})" for name in Colours._fields if name != "series"}
    return Colours(**names, series=tuple(f"var(--s{i})" for i in range(len(LIGHT.series))))


_PAGE = f"""
body{{margin:0;background:var(--window);color:var(--text);font:14px/1.5 {FONT};
font-variant-numeric:tabular-nums}}
main{{max-width:820px;margin:24px auto;padding:24px 32px;background:var(--surface);
border:1px solid var(--line);border-radius:8px}}
h1{{font-size:22px;margin:0 0 4px}}h2{{font-size:17px;margin:28px 0 8px}}h3{{font-size:14px;
margin:18px 0 4px}}
.about,.note,figcaption{{color:var(--muted);font-size:12px}}p{{margin:6px 0}}
table{{border-collapse:collapse;margin:8px 0;width:100%;font-size:13px}}
th,td{{text-align:left;vertical-align:top;padding:4px 12px 4px 0;
border-bottom:1px solid var(--line);overflow-wrap:anywhere}}
th{{color:var(--muted);font-weight:500;white-space:nowrap}}
figure{{margin:12px 0 16px}}figure b{{font-weight:600}}svg{{display:block;width:100%;height:auto;
font-family:{FONT}}}
pre{{background:var(--window);border-radius:6px;padding:8px 10px;overflow-x:auto;
font:12px/1.45 {MONO}}}
code{{font-family:{MONO};font-size:12px}}details{{margin-top:12px}}summary{{cursor:pointer;
color:var(--muted)}}
.key{{display:inline-block;margin-right:14px}}.key i{{display:inline-block;width:10px;height:10px;
border-radius:2px;margin-right:5px}}
@media print{{body{{background:none}}main{{border:none;margin:0;padding:0;max-width:none}}
figure,tr{{break-inside:avoid}}}}
""".replace("\n", "")
