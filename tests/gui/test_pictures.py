"""Compare every page of the real window with a reference picture, in both schemes.

After an intended change, run `python -m tests.gui.pictures` and look at each picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QFont, QImage
from PySide6.QtWidgets import QApplication, QWidget

from gpudeck.app.widgets import theme
from tests.gui.likeness import REFERENCES, most, thumbnail, unlike
from tests.gui.pictures import FLEETS, SCHEMES, VIEWS, Stage, pictures, stage


def reference(name: str) -> QImage:
    found = QImage(str(REFERENCES / f"{name}.png"))
    assert not found.isNull(), f"there is no reference of {name}: python -m tests.gui.pictures"
    return found


@pytest.mark.parametrize("count", FLEETS)
def test_every_page_looks_like_its_reference(
    qapp: QApplication, clean_qt: None, tmp_path: Path, count: int
) -> None:
    wrong = []
    with stage(qapp, count) as on:
        for name, widget in pictures(on, count):
            picture, known = widget.grab().toImage(), reference(name)
            if (blocks := unlike(thumbnail(picture), known)) > most(known):
                picture.save(str(tmp_path / f"{name}.png"))
                wrong.append(f"{name}: {blocks} blocks are unlike, {most(known)} may be")
    assert not wrong, f"{wrong}; the pictures are in {tmp_path}"


def test_references_and_pictures_have_the_same_names() -> None:
    names = {
        f"{count}-{view}-{scheme}"
        for count in FLEETS
        for view in VIEWS[count]
        for scheme in SCHEMES
    }
    assert {file.stem for file in REFERENCES.iterdir()} == names
    assert sum(file.stat().st_size for file in REFERENCES.iterdir()) < 500_000


def faults(on: Stage) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Yield faults of a dashboard of eight GPUs: their names, and how to cause and undo them."""
    page, app = on.window.dashboard, on.app
    sheet = app.styleSheet()
    for field, chart in page.charts.items():
        curves = chart.view.curves
        drawn = {"paths": curves.paths, "_heat": curves._heat}
        yield f"no panel of {field}", chart.frame.hide, chart.frame.show
        yield f"no plot of {field}", chart.view.hide, chart.view.show
        yield (
            f"no curves and no heat map of {field}",
            lambda c=curves: (c.show_paths({}, {}), c.show_heat(None)),
            lambda c=curves, d=drawn: vars(c).update(d),
        )
    tile = list(on.window.strip.tiles.values())[-1]
    yield "no legend", page.legend.hide, page.legend.show
    yield "no buttons above the charts", page.bar.hide, page.bar.show
    yield "no tile of the last GPU", tile.hide, tile.show
    yield (
        "no bars of jobs",
        lambda: page.jobs.show_spans((), page.axis.limits, {}),
        on.window.refresh,
    )
    yield (
        "text in the colour of what is behind it",
        lambda: app.setStyleSheet(sheet + hidden()),
        lambda: app.setStyleSheet(sheet),
    )
    yield "no rail", on.window.rail.hide, on.window.rail.show


def hidden() -> str:
    return f"QLabel, QPushButton {{ color: {theme.tokens().surface}; }}"


@pytest.mark.slow
def test_faults_are_found_and_other_antialiasing_is_not(qapp: QApplication, clean_qt: None) -> None:
    with stage(qapp, 8) as on:
        VIEWS[8]["dashboard"](on)
        on.settle()
        known = reference("8-dashboard-light")

        def found() -> int:
            qapp.processEvents()
            return unlike(thumbnail(on.window.grab().toImage()), known)

        assert found() <= most(known)
        missed = []
        for name, plant, undo in faults(on):
            plant()
            missed += [name] if found() <= 2 * most(known) else []
            undo()
        assert missed == []
        on.settle()
        before = on.window.grab().toImage()
        for widget in [on.window, *on.window.findChildren(QWidget)]:
            font = widget.font()
            font.setStyleStrategy(QFont.StyleStrategy.NoAntialias)
            font.setHintingPreference(QFont.HintingPreference.PreferFullHinting)
            widget.setFont(font)
        assert found() <= most(known)
        assert on.window.grab().toImage() != before, "the other antialiasing is seen"
