"""Check that the curves of a job find room beside and below each other."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from gpudeck.app.charts.curve_strip import CurveStrip

NAMES = ("held_out", "loss", "rate", "norm", "seconds", "tokens_per_second")


@pytest.mark.parametrize("widths", [(505,), (1400, 505), (200, 1400, 300)])
def test_no_curve_covers_another_one_however_wide_the_room_is(
    qtbot: QtBot, widths: tuple[int, ...]
) -> None:
    pane = QWidget()  # which is as wide as the page lets it be
    qtbot.addWidget(pane)
    strip = CurveStrip()
    strip.setParent(pane)
    pane.show()
    strip.show_curves({name: (np.arange(9.0), np.arange(9.0)) for name in NAMES})

    def lies_apart() -> bool:
        places = [chart.geometry() for chart in strip.charts.values()]
        inside = all(strip.rect().contains(place) for place in places)
        return inside and not any(one.intersects(other) for one, other in combinations(places, 2))

    for width in widths:
        strip.setGeometry(0, 0, width, 900)
        qtbot.waitUntil(lies_apart)
