"""Every page fits into the smallest window, and says what it leaves out."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QScrollArea

from app.shell.window import PAGES, SMALLEST
from tests.gui import snapshots
from tests.gui.readable import clipped


@pytest.mark.parametrize("count", [1, 8, 72])
def test_no_page_of_the_smallest_window_is_scrolled_sideways_or_cut(fed, count):
    fed.window.resize(SMALLEST)
    fed.feed(snapshots.gpu_snapshot(count, replay=True))
    wrong = []
    for name in (*PAGES, "device", "code"):
        if name == "device":
            fed.window.show_device(snapshots.gpu(0).id)
        else:
            fed.window.show_page(name)
        fed.settle()
        wrong += [
            f"{name}: {area.accessibleName() or type(area).__name__} is scrolled sideways"
            for area in fed.window.findChildren(QScrollArea)
            if area.isVisible() and area.widget().width() > area.viewport().width()
        ]
        wrong += [f"{name}: {text}" for text in clipped(fed.window)]
    assert wrong == []
