"""Choose the tokens of each step, as a function of seed and step alone.

The tokens are cut into windows of equal length. A part of them, drawn by the seed, is held out. The
others are trained on in an order that is drawn anew for each pass over them, by seed and pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.loss import IGNORED
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shards import UNLEARNED, TokenData
from gpudeck.language.text import phrase

_HELD_OUT, _ORDER = 1, 2
"""What random numbers are drawn for."""
_MOST_EVALUATED = 128
"""Held-out windows that a loss is computed of."""


@dataclass(frozen=True)
class Batch:
    """Sequences with what is to be predicted at each place."""

    tokens: NDArray[np.int64]
    """[sequences, length]."""
    targets: NDArray[np.int64]
    """Like tokens; `IGNORED` where nothing is predicted."""
    lengths: tuple[int, ...]
    """Of the documents, which lie end to end in all rows."""

    @property
    def learned(self) -> int:
        """Return the number of targets."""
        return int((self.targets != IGNORED).sum())


class Batches:
    """Return the batch of each step, and the held-out ones."""

    def __init__(self, data: TokenData, settings: Settings) -> None:
        """Divide the data.

        Raises:
            Refused: if it is too short.
        """
        self._data, self._settings = data, settings
        count = (len(data) - 1) // settings.tokens
        held = round(settings.held_out * count) or int(settings.held_out > 0)
        if count - held < 1:
            raise Refused(
                phrase(
                    "the data has {count} tokens, too few for sequences of {tokens}. Choose fewer"
                    " tokens, or more data",
                    count=len(data),
                    tokens=settings.tokens,
                )
            )
        drawn = np.random.default_rng((settings.seed, _HELD_OUT)).permutation(count)
        self._held_out, self._trained = drawn[:held], np.sort(drawn[held:])
        self._order = lru_cache(2)(self._draw)

    @property
    def trained_tokens(self) -> int:
        """Return the number of tokens in a pass."""
        return len(self._trained) * self._settings.tokens

    def batch(self, step: int) -> Batch:
        """Return the sequences of a step, counted from 0."""
        first = step * self._settings.batch
        windows = []
        for place in range(first, first + self._settings.batch):
            turn, at = divmod(place, len(self._trained))
            windows.append(int(self._order(turn)[at]))
        return self._cut(windows)

    def held_out(self) -> list[Batch]:
        """Return the held-out sequences in batches, always the same ones; at most 128."""
        size = self._settings.batch // self._settings.accumulate
        windows = [int(w) for w in self._held_out[:_MOST_EVALUATED]]
        return [self._cut(windows[i : i + size]) for i in range(0, len(windows), size)]

    def parts(self, batch: Batch, ranks: int = 1) -> list[Batch]:
        """Divide a batch into the parts that are computed one after the other, by `ranks`
        processes at a time."""
        size = self._settings.batch // (self._settings.accumulate * ranks)
        edges = np.cumsum(batch.lengths)
        parts = []
        for begin in range(0, len(batch.tokens), size):
            rows = slice(begin, begin + size)
            low, high = (n * self._settings.tokens for n in (begin, begin + size))
            within = (edges > low) & (edges <= high)
            lengths = tuple(n for n, taken in zip(batch.lengths, within, strict=True) if taken)
            parts.append(Batch(batch.tokens[rows], batch.targets[rows], lengths))
        return parts

    def _draw(self, turn: int) -> NDArray[np.int64]:
        return np.random.default_rng((self._settings.seed, _ORDER, turn)).permutation(self._trained)

    def _cut(self, windows: list[int]) -> Batch:
        """Return the sequences of windows, with the documents in them."""
        length, starts = self._settings.tokens, self._data.starts
        rows, lengths = [], []
        for window in windows:
            begin = window * length
            rows.append(self._data.take(begin, length + 1))
            first = np.searchsorted(starts, begin, side="right")
            inner = starts[first : np.searchsorted(starts, begin + length)] - begin
            lengths += np.diff([0, *inner, length]).tolist()
        raw = np.stack(rows).astype(np.int64)
        tokens = raw & (UNLEARNED - 1)
        targets = np.where(raw[:, 1:] & UNLEARNED, IGNORED, tokens[:, 1:])
        return Batch(tokens[:, :-1], targets, tuple(lengths))
