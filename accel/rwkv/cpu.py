"""Compute one token on a CPU, and the recurrence of many, with compiled kernels.

Activations are fp32; weights are fp32 or int8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpudeck.accel.rwkv import cpu_kernels as kernels
from gpudeck.accel.rwkv.parameters import Layer, Parameters
from gpudeck.accel.rwkv.state import State
from gpudeck.accel.rwkv.storage import Matrix

_RECURRENCE: Any = kernels.recurrence
_STEP: Any = kernels.step


def recurrence(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute an `gpudeck.accel.rwkv.layers.Recurrence`, bit for bit equal to token after token."""
    y, after = r.new_empty(r.shape), state.clone(memory_format=torch.contiguous_format)
    _RECURRENCE(*(x.contiguous().numpy() for x in (r, w, k, v, a, b)), after.numpy(), y.numpy())
    return y, after


class Step:
    """Compute one token. A Step has one scratch memory, so two threads must not share it."""

    def __init__(self, parameters: Parameters) -> None:
        """Prepare the step for `parameters` on a CPU that compute in fp32."""
        channels = parameters.embeddings.shape[1]
        table = np.array(
            [[_places(layer)[name] for name in kernels.FIELDS] for layer in parameters.layers],
            dtype=np.int64,
        )
        widest = max(
            channels,
            *(layer.ffn_key.values.shape[0] for layer in parameters.layers),
            table[:, _RANKS].max(),
        )
        self._embeddings = parameters.embeddings
        self._weights = (
            table,
            *(t.numpy() for t in (parameters.vectors, parameters.values, parameters.scales)),
        )
        self._room = np.empty((kernels.ROOM, widest), np.float32)
        self._used = np.empty(widest, np.int64)
        head, norm = parameters.head, parameters.norm
        places = (_at(head.values), _scale(head), _at(norm.weight), _at(norm.bias))
        self._tail = (self._room, self._used, *places)

    def __call__(self, token: int, state: State) -> tuple[Tensor, State]:
        """Return logits [V] and the new state, for a token of the model and a state of one
        sequence.
        """
        after = State(
            torch.empty_like(state.shift), state.wkv.clone(memory_format=torch.contiguous_format)
        )
        logits = self._embeddings.new_empty(len(self._embeddings))
        states = (t.squeeze(1).numpy() for t in (state.shift.contiguous(), after.shift, after.wkv))
        _STEP(
            *self._weights,
            self._embeddings[token].clone().numpy(),
            *states,
            *self._tail,
            logits.numpy(),
        )
        return logits, after


_RANKS = slice(kernels.FIELDS.index("decay_rank"), kernels.FIELDS.index("hidden"))


def _places(layer: Layer) -> dict[str, int]:
    """Return the offset of each of `kernels.FIELDS` in its arena."""
    places = {name: _at(getattr(layer, name)) for name in ("mixes", "k_k", "k_a", "r_k", "mix_ffn")}
    for name in ("norm_att", "norm_wkv", "norm_ffn"):
        places[name], places[f"{name}_bias"] = map(_at, getattr(layer, name))
    for name in ("decay", "rate", "residual", "gate"):
        bias, down, up = getattr(layer, name)
        places |= {
            name: -1 if bias is None else _at(bias),
            f"{name}_down": _at(down),
            f"{name}_up": _at(up),
            f"{name}_rank": len(down),
        }
    for name in ("receptance", "key", "value", "output", "ffn_key", "ffn_value"):
        matrix = getattr(layer, name)
        places |= {name: _at(matrix.values), f"{name}_scale": _scale(matrix)}
    return places | {"hidden": layer.ffn_key.values.shape[0]}


def _at(tensor: Tensor) -> int:
    return int(tensor.storage_offset())


def _scale(matrix: Matrix) -> int:
    return 0 if matrix.scales is None else _at(matrix.scales)
