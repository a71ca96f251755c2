"""Compare two pictures of a window by what a person sees from afar.

A picture is reduced to blocks of 8x8 pixels with their mean colours, which are averaged with the
blocks around them. Another antialiasing or hinting and slightly longer texts change blocks a
little; a missing panel, curve or legend changes many. Measured on the dashboard of eight GPUs: no
block differs by more than TOLERANCE without antialiasing, 2 do with full hinting as well, and 105
without the legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QImage, QPainter

REFERENCES = Path(__file__).parent / "references"
BLOCK = 8
"""Pixels of the side of a block."""
TOLERANCE = 6.0
"""Levels of 255 by which a block may differ."""
_HIGH, _WIDE = 1, 3
"""Distance in blocks that still counts as the same place."""
Values = NDArray[np.float64]


def thumbnail(picture: QImage) -> QImage:
    """Return the mean colour of each block."""
    flat = picture.convertToFormat(QImage.Format.Format_RGB32)
    size = -(-flat.width() // BLOCK), -(-flat.height() // BLOCK)
    return flat.scaled(
        *size, Qt.AspectRatioMode.IgnoreAspectRatio, Qt.TransformationMode.SmoothTransformation
    )


def unlike(picture: QImage, reference: QImage) -> int:
    """Count the blocks that differ from the reference; all of them if the sizes differ."""
    one, other = _smooth(_values(picture)), _smooth(_values(reference))
    if one.shape != other.shape:
        return int(one.shape[0] * one.shape[1])
    if np.abs(one - other).max() <= TOLERANCE:
        return 0
    return int((np.maximum(_nearest(one, other), _nearest(other, one)) > TOLERANCE).sum())


def most(reference: QImage) -> int:
    """Return the number of blocks that may differ, which depends on the size."""
    return max(4, min(24, reference.width() * reference.height() // 25))


def _values(picture: QImage) -> Values:
    """Return the blocks as numbers from 0 to 255, [height, width, 3]."""
    flat = picture.convertToFormat(QImage.Format.Format_RGB888)
    lines = np.frombuffer(flat.constBits(), np.uint8).reshape(flat.height(), flat.bytesPerLine())
    return lines[:, : 3 * flat.width()].reshape(flat.height(), flat.width(), 3).astype(np.float64)


def _around(values: Values) -> Iterator[Values]:
    """Yield the values shifted by up to _WIDE blocks sideways and _HIGH up and down."""
    high, wide, _ = values.shape
    padded = np.pad(values, ((_HIGH, _HIGH), (_WIDE, _WIDE), (0, 0)), mode="edge")
    for y in range(2 * _HIGH + 1):
        for x in range(2 * _WIDE + 1):
            yield padded[y : y + high, x : x + wide]


def _smooth(values: Values) -> Values:
    return np.mean(list(_around(values)), axis=0)


def _nearest(values: Values, other: Values) -> Values:
    """Return the distance of each block from the most similar one nearby, [height, width]."""
    return np.min([np.abs(values - there).max(axis=2) for there in _around(other)], axis=0)


def sheet(pictures: Mapping[str, QImage], across: int = 4, width: int = 640) -> QImage:
    """Combine all pictures on one sheet, each below its name."""
    height, line = width * 5 // 8, 18
    made = QImage(
        across * width, -(-len(pictures) // across) * (height + line), QImage.Format.Format_RGB32
    )
    made.fill(QColor("#808080"))
    painter = QPainter(made)
    for i, (name, picture) in enumerate(pictures.items()):
        left, top = i % across * width, i // across * (height + line)
        painter.drawText(QRect(left + 4, top, width, line), Qt.AlignmentFlag.AlignVCenter, name)
        box = picture.size().scaled(width - 4, height, Qt.AspectRatioMode.KeepAspectRatio)
        smooth = picture.scaled(
            box, Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
        )
        painter.drawImage(left, top + line, smooth)
    painter.end()
    return made
