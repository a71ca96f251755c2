"""Every control has a name for screen readers and is reached by the keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QWidget,
)

from gpudeck.app.assistant.requests import FinishedAnswer
from gpudeck.app.shell.window import PAGES
from gpudeck.app.widgets import theme
from tests.gui import snapshots
from tests.gui.readable import focusable, nameless


@pytest.mark.parametrize("count", [2, 24])
def test_every_control_of_every_page_has_a_name(fed, count):
    fed.feed(snapshots.gpu_snapshot(count), history=True)
    fed.window.assistant.show_answer(
        "What happened?", FinishedAnswer("# Much\n\nhappened", "template", (("a", "b", "c"),))
    )
    found = {}
    for page in PAGES:
        fed.window.show_page(page)
        fed.settle()
        found[page] = nameless(fed.window)
    fed.window.show_device(snapshots.gpu(1).id)
    fed.settle()
    found["device"] = nameless(fed.window)
    assert [f"{page}: {name}" for page, names in found.items() for name in names] == []


def test_the_tab_key_reaches_every_control_and_returns(fed):
    fed.feed(snapshots.gpu_snapshot(2), history=True)
    seen: list[QWidget] = []
    at: QWidget = fed.window
    for _ in range(2000):
        at = at.nextInFocusChain()
        if at is fed.window:
            break
        if (
            at.isVisibleTo(fed.window)
            and focusable(at)
            and at.focusPolicy() & Qt.FocusPolicy.TabFocus
        ):
            seen.append(at)
    assert set(fed.window.rail.buttons.values()) <= set(seen)
    assert set(fed.window.strip.tiles.values()) <= set(seen)
    assert fed.window.dashboard.bar.live in seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_checked_box_has_a_tick(qtbot, scheme) -> None:
    app = QApplication.instance()
    before = app.property("scheme")
    theme.apply(app, scheme)
    box = QCheckBox("")
    qtbot.addWidget(box)
    box.setChecked(True)
    box.resize(40, 40)
    picture = box.grab().toImage()
    tick = QColor(theme.tokens().on_accent)
    dots = [
        picture.pixelColor(x, y) for x in range(picture.width()) for y in range(picture.height())
    ]
    drawn = sum(
        abs(dot.lightness() - tick.lightness()) < 30
        for dot in dots
        if dot.hslHue() == tick.hslHue() or dot == tick
    )
    ground = sum(dot == QColor(theme.tokens().accent) for dot in dots)
    theme.apply(app, before or "light")
    assert ground > 50, "the box is filled"
    assert 5 < drawn < ground, "and something stands on it"
