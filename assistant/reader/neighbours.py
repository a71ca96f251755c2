"""Let the requests that are nearest to one say what it means.

A linear head draws planes between kinds of requests; the nearest examples know their exceptions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpudeck.assistant.reader.encoder import Array

FILE = "neighbours.npz"
_NEAREST = 8
_WIDTH = 0.05
"""The likeness by which a nearer request counts e times as much."""


class Neighbours:
    """Hold what the reader learnt from, as directions in a few dimensions."""

    def __init__(self, stored: dict[str, npt.NDArray[np.generic]]) -> None:
        self._axes = stored["axes"].astype(np.float32)
        self._middle = stored["middle"].astype(np.float32)
        self._heads = stored["heads"].astype(np.intp)
        self._rows = _unit(stored["rows"].astype(np.float32))

    @classmethod
    def load(cls, folder: Path) -> Neighbours:
        """Load the examples from the reader's folder."""
        with np.load(folder / FILE) as stored:
            return cls(dict(stored))

    def vote(self, whole: Array, classes: int) -> Array:
        """Return how probable the nearest examples hold each class: [768] -> [classes]."""
        likeness = self._rows @ _unit(whole @ self._axes - self._middle)
        nearest = np.argpartition(-likeness, _NEAREST)[:_NEAREST]
        weights = np.exp((likeness[nearest] - likeness[nearest].max()) / _WIDTH)
        found = np.zeros(classes, np.float32)
        np.add.at(found, self._heads[nearest], weights / weights.sum())
        return found


def save(file: Path, whole: Array, heads: npt.NDArray[np.intp], size: int = 192) -> None:
    """Write examples in the form that ships.

    Args:
        file: Where they are written.
        whole: What stands for each request: [N, 768].
        heads: The class of each.
        size: The dimensions that are kept, which are those of the largest spread.
    """
    mean, spread = whole.mean(axis=0), whole.std(axis=0) + 1e-6
    scaled = (whole - mean) / spread
    _, directions = np.linalg.eigh(scaled.T @ scaled)
    axes = (directions[:, -size:] / spread[:, None]).astype(np.float16)
    middle = mean @ axes.astype(np.float32)
    rows = whole @ axes.astype(np.float32) - middle
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    small = np.round(rows / peaks * 127).astype(np.int8)
    np.savez_compressed(file, axes=axes, middle=middle, heads=heads.astype(np.uint8), rows=small)


def _unit(x: Array) -> Array:
    found: Array = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return found
