"""Colours are distinguishable with every kind of colour blindness."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from gpudeck.app.widgets.theme import DARK, LIGHT, Tokens

# Machado, Oliveira and Fernandes 2009, severity 1, in linear RGB
SIGHT = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
_WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(color: str, sight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return CIE L*a*b* of `#rrggbb` as a person with this vision sees it."""
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = _TO_XYZ @ np.clip(sight @ linear, 0, 1) / _WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors: tuple[str, ...], sight: NDArray[np.float64]) -> float:
    """Return the smallest distance of two colours; 2.3 is just noticeable."""
    return min(
        float(np.linalg.norm(lab(a, sight) - lab(b, sight))) for a, b in combinations(colors, 2)
    )


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("t", [LIGHT, DARK], ids=lambda t: t.scheme)
def test_eight_curves_are_distinguishable(t: Tokens, sight: str) -> None:
    assert nearest(t.series, SIGHT[sight]) > 12


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("t", [LIGHT, DARK], ids=lambda t: t.scheme)
def test_meanings_are_distinguishable_from_text(t: Tokens, sight: str) -> None:
    for meaning in (t.warm, t.hot, t.throttled, t.failed):
        assert nearest((meaning, t.text), SIGHT[sight]) > 20
        assert nearest((meaning, t.muted), SIGHT[sight]) > 9
