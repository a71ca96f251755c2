"""Compute an RWKV-7 model in NumPy, as `gpudeck.accel.rwkv.layers` defines it.

Only for models of a few million parameters: the recurrence runs token by token.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Array = npt.NDArray[np.floating[Any]]
HEAD = 64
_DECAY = math.exp(-0.5)
_EPS, _GROUP_EPS = 1e-5, 64e-5


class State(NamedTuple):
    """Hold what the tokens so far left behind, for each layer: [B, 2, C] and [B, H, 64, 64]."""

    shifts: tuple[Array, ...]
    memories: tuple[Array, ...]

    def rows(self, rows: npt.NDArray[np.intp]) -> State:
        """Return the states of some sequences, in this order."""
        return State(
            tuple(shift[rows] for shift in self.shifts), tuple(m[rows] for m in self.memories)
        )


class Network:
    """Hold the weights of a model."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = {name: array.astype(np.float32) for name, array in weights.items()}
        self.layers = sum(name.endswith(".ln1.weight") for name in weights)
        self.channels = weights["emb.weight"].shape[1]

    @classmethod
    def load(cls, file: Path) -> Network:
        """Load the weights with the names of `gpudeck.accel.rwkv.weights`."""
        return cls(load_file(file))

    def empty(self) -> State:
        """Return the state before the first token, for one sequence."""
        heads = self.channels // HEAD
        return State(
            tuple(np.zeros((1, 2, self.channels), np.float32) for _ in range(self.layers)),
            tuple(np.zeros((1, heads, HEAD, HEAD), np.float32) for _ in range(self.layers)),
        )

    def read(self, tokens: npt.NDArray[np.intp], before: State) -> tuple[Array, State]:
        """Return the log-probabilities [B, V] of the tokens after [B, T], and the new state."""
        w = self.weights
        x = _norm(w["emb.weight"][tokens], w["blocks.0.ln0.weight"], w["blocks.0.ln0.bias"])
        shifts, memories, first = list[Array](), list[Array](), None
        for i in range(self.layers):
            block = f"blocks.{i}."
            a = _norm(x, w[block + "ln1.weight"], w[block + "ln1.bias"])
            out, memory, first = self._time_mix(
                block + "att.", a, before.shifts[i][:, 0], before.memories[i], first
            )
            x = x + out
            f = _norm(x, w[block + "ln2.weight"], w[block + "ln2.bias"])
            x = x + self._channel_mix(block + "ffn.", f, before.shifts[i][:, 1])
            shifts.append(np.stack((a[:, -1], f[:, -1]), axis=1))
            memories.append(memory)
        last = _norm(x[:, -1], w["ln_out.weight"], w["ln_out.bias"]) @ w["head.weight"].T
        last -= last.max(axis=-1, keepdims=True)
        logs = last - np.log(np.exp(last).sum(axis=-1, keepdims=True))
        return logs, State(tuple(shifts), tuple(memories))

    def _time_mix(
        self, att: str, x: Array, last: Array, memory: Array, first: Array | None
    ) -> tuple[Array, Array, Array]:
        w = self.weights
        shift = _shifted(x, last) - x
        mixed = {name: x + shift * w[f"{att}x_{name}"] for name in "rwkvag"}
        r, k, v = (
            mixed[name] @ w[f"{att}{long}.weight"].T
            for name, long in (("r", "receptance"), ("k", "key"), ("v", "value"))
        )
        decay = np.exp(
            -_DECAY * _sigmoid(w[att + "w0"] + np.tanh(mixed["w"] @ w[att + "w1"]) @ w[att + "w2"])
        )
        rate = _sigmoid(w[att + "a0"] + mixed["a"] @ w[att + "a1"] @ w[att + "a2"])
        gate = _sigmoid(mixed["g"] @ w[att + "g1"]) @ w[att + "g2"]
        if first is None:
            first = v
        else:
            share = _sigmoid(w[att + "v0"] + mixed["v"] @ w[att + "v1"] @ w[att + "v2"])
            v = v + (first - v) * share
        heads = (*x.shape[:2], self.channels // HEAD, HEAD)
        removal = (k * w[att + "k_k"]).reshape(heads)
        removal /= np.maximum(np.sqrt((removal**2).sum(axis=-1, keepdims=True)), 1e-12)
        k = k * (1 + (rate - 1) * w[att + "k_a"])
        r, k, values, rate, decay = (y.reshape(heads) for y in (r, k, v, rate, decay))
        gained = removal * rate
        y = np.empty(heads, np.float32)
        for t in range(x.shape[1]):
            erased = memory @ -removal[:, t, :, :, None]
            memory = (
                memory * decay[:, t, :, None, :]
                + erased * gained[:, t, :, None, :]
                + values[:, t, :, :, None] * k[:, t, :, None, :]
            )
            y[:, t] = (memory @ r[:, t, :, :, None])[..., 0]
        y -= y.mean(axis=-1, keepdims=True)
        y /= np.sqrt((y**2).mean(axis=-1, keepdims=True) + _GROUP_EPS)
        normed = y.reshape(x.shape) * w[att + "ln_x.weight"] + w[att + "ln_x.bias"]
        bonus = (r * k * w[att + "r_k"]).sum(axis=-1, keepdims=True) * values
        out = ((normed + bonus.reshape(x.shape)) * gate) @ w[att + "output.weight"].T
        return out, memory, first

    def _channel_mix(self, ffn: str, x: Array, last: Array) -> Array:
        w = self.weights
        mixed = x + (_shifted(x, last) - x) * w[ffn + "x_k"]
        active: Array = np.maximum(mixed @ w[ffn + "key.weight"].T, 0)
        out: Array = (active * active) @ w[ffn + "value.weight"].T
        return out


def _norm(x: Array, weight: Array, bias: Array) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    out: Array = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + _EPS) * weight + bias
    return out


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _shifted(x: Array, last: Array) -> Array:
    """Return the token before each token: x [B, T, C], last [B, C] -> [B, T, C]."""
    return np.concatenate((last[:, None], x[:, :-1]), axis=1)
