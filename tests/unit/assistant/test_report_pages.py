"""Reports as pages load nothing, show gaps in charts, and keep foreign text from
becoming markup.
"""

from __future__ import annotations

import os
import re
import stat
import time
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from test_reports import EVIL, USED, composed, of_job, span

from gpudeck.app.widgets import theme
from gpudeck.assistant.reports import files, style
from gpudeck.assistant.reports import svg as drawing
from gpudeck.assistant.reports.html import html
from gpudeck.assistant.reports.markdown import markdown
from gpudeck.assistant.reports.report import Chart, Curve, Prose, Report, Section
from gpudeck.assistant.reports.svg import draw_svg
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Event

HOSTILE = of_job(
    msgspec.structs.replace(USED, spec=msgspec.structs.replace(USED.spec, name=EVIL)),
    EVIL.encode(),
    (Event(1.0, EVIL, EVIL),),
)


class Tags(HTMLParser):
    """Collect the tags and attributes of a page, and check that all are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.used: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.used.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "path", "circle", "br"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.used.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


@pytest.mark.parametrize("material", [HOSTILE, span(USED)], ids=["hostile", "daily"])
def test_a_page_loads_nothing_runs_nothing_and_has_no_links(material) -> None:
    page = html(composed(material))
    found = Tags(page)
    assert not found.used & {
        "script",
        "img",
        "a",
        "link",
        "iframe",
        "object",
        "image",
        "use",
        "form",
    }
    assert not {
        name
        for name in found.attributes
        if name.startswith("on") or name in ("href", "src", "xlink:href")
    }
    assert "url(" not in page and "@import" not in page
    assert "default-src &#x27;none&#x27;" in page


def test_foreign_words_are_shown_unchanged() -> None:
    page = html(composed(HOSTILE))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "# x - **b** | `code`" in re.sub(r"&lt;.*", "", page.split("<h1>")[1])
    assert "- **b** | `code` &lt;script&gt;" in page.split("<pre>")[1]


def test_a_page_is_light_and_dark_in_the_colours_of_the_window() -> None:
    for ours, theirs in ((style.LIGHT, theme.LIGHT), (style.DARK, theme.DARK)):
        for name in style.Colours._fields:
            assert getattr(ours, name) == getattr(theirs, name)
    sheet = style.sheet()
    assert (
        "@media (prefers-color-scheme:dark)" in sheet
        and style.DARK.surface in sheet
        and style.LIGHT.surface in sheet
    )


def test_words_of_a_model_cannot_add_markup() -> None:
    report = Report(
        "span",
        "x",
        0.0,
        9.0,
        9.0,
        "model m",
        (Section("", (Prose(f"{EVIL}\n\n<img src=x onerror=alert(1)>"),)),),
        (),
    )
    found = Tags(html(report))
    assert not found.used & {"script", "img", "a"}


def chart(*values: float | None, top: float | None = 100.0) -> Chart:
    times = tuple(float(i) for i in range(len(values)))
    return Chart(
        "Utilisation & more",
        "%",
        0.0,
        len(values) - 1.0,
        (Curve("GPU 0", times, values, values, values),),
        "readings",
        top,
    )


def test_a_curve_breaks_at_a_gap() -> None:
    drawn = ElementTree.fromstring(draw_svg(chart(10, 20, None, 30, 40, None, 50)))
    space = "{http://www.w3.org/2000/svg}"
    assert len([p for p in drawn.iter(f"{space}path") if p.get("class") == "l0"]) == 2
    assert len([*drawn.iter(f"{space}circle")]) == 1
    assert drawn.get("aria-label") == "Utilisation & more, %"
    points = re.findall(
        r"[\d.]+", next(p for p in drawn.iter(f"{space}path") if p.get("class") == "l0").get("d")
    )
    assert float(points[1]) > float(points[3]), "more is higher"


def test_a_band_lies_between_lowest_and_highest() -> None:
    line = Curve("GPU 0", (0.0, 1.0), (5.0, 5.0), (1.0, 1.0), (9.0, 9.0))
    assert 'class="b0"' in draw_svg(Chart("x", "W", 0.0, 1.0, (line,), "s"))
    assert 'class="b0"' not in draw_svg(chart(5, 5))


@pytest.mark.parametrize(
    "highest", [1e-9, 0.0871, 1, 99.9, 100, 703, 1e12, 0, float("inf"), float("nan")]
)
def test_a_value_axis_ends_above_its_values_with_few_round_ticks(highest: float) -> None:
    end = drawing.axis_end(highest)
    assert end > 0 and not end < highest < float("inf")
    assert 2 <= len(drawing.axis_values(end)) <= 7
    assert ElementTree.fromstring(draw_svg(chart(highest, None, top=None))) is not None


@pytest.mark.parametrize("length", [0.5, 9, 60, 600, 3600, 86400, 7 * 86400, 30 * 86400, 3e7])
def test_a_time_axis_has_few_ticks_within_its_ends(length: float) -> None:
    since = 1_763_000_000.0
    found = drawing.axis_moments(since, since + length)
    assert len(found) <= 7 and all(since <= at <= since + length for at, _ in found)
    assert length < 2 or found
    assert len({label for _, label in found}) == len(found)


def test_in_markdown_a_chart_is_a_line_and_foreign_text_cannot_close_its_fence() -> None:
    text = markdown(composed(span(USED)))
    assert re.search(r"^REPLAY GPU 0  [▁▂▃▄▅▆▇█ ]+$", text, re.MULTILINE)
    report = composed(of_job(USED, b"a\n```\n# not a heading\n````x"))
    assert "`````text\na\n```\n# not a heading\n````x\n`````" in markdown(report)


def test_kept_reports_are_private_and_limited(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KEPT", 3)
    report = composed(of_job(USED))
    for number in range(5):
        file = files.keep(msgspec.structs.replace(report, job=number))
        os.utime(file, (time.time() - 100 + number,) * 2)
    found = sorted(f.name for f in (home / "reports").iterdir())
    assert found == ["job-2.html", "job-3.html", "job-4.html"]
    assert stat.S_IMODE((home / "reports").stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert files.name(composed(span())).startswith("daily-20")


def test_a_report_is_not_written_through_a_link(home: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    files.folder()
    (home / "reports" / "job-7.html").symlink_to(victim)
    (home / "reports" / ".job-7.html.new").symlink_to(victim)
    assert not files.keep(composed(of_job(USED))).is_symlink()
    assert victim.read_text() == "precious"


def test_a_folder_open_to_others_is_refused(home: Path) -> None:
    files.folder()
    (home / "reports").chmod(0o777)
    with pytest.raises(UserError, match="open to others"):
        files.keep(composed(of_job(USED)))
