"""Process a prompt on a GPU: many tokens of one sequence at once.

cuBLAS computes the matrix products, and kernels of our own everything between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.linear_attention.api import linear_attention
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.graphs import Replay
from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.rwkv import prompt_kernels as kernels
from gpudeck.accel.rwkv.parameters import Layer, Norm, Parameters, Rank
from gpudeck.accel.rwkv.state import State
from gpudeck.accel.rwkv.storage import Matrix
from gpudeck.accel.rwkv.weights import HEAD

_TOKENS = 16
"""Tokens of a head for each program of the kernels before and after the recurrence."""
_Launch = Callable[..., None]


class Scan(NamedTuple):
    """Describe how the recurrence is divided among programs."""

    rows: int
    """Values of a head for each program."""
    ahead: int
    """Tokens whose vectors are loaded ahead."""
    warps: int


SCAN = Scan(16, 4, 4)
CHUNKS_FROM = 512
"""The tokens from which matrix products beat the recurrence token by token: whole pieces of a
prompt, which are replayed as a graph. Shorter ones take as long as the host needs to launch them.
"""
CHUNKED = (torch.bfloat16,)
"""The types of activations whose rounding is that of the products in chunks."""


class Prompt:
    """Process `length` tokens of one sequence. Two threads must not share a Prompt."""

    def __init__(self, parameters: Parameters, length: int, *, captured: bool = False) -> None:
        """Plan the kernels.

        captured: as one CUDA graph, which costs four runs at its first use. Interpreted kernels run
        on any device, without a graph.
        """
        self._parameters, self._length, self._channels = (
            parameters,
            length,
            parameters.embeddings.shape[1],
        )
        self._captured = captured
        self._replay: Replay[tuple[Tensor, Tensor, Tensor]] | None = None
        self.calls: list[KernelCall] = []
        """Every kernel, as planned."""
        self._launch = cache(self._planned)

    def __call__(self, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Process `length` tokens; return the last layer's output [1, C] for the last one, and the
        state.
        """
        inputs = (torch.tensor(tokens, device=self._parameters.device), state.shift, state.wkv)
        if not self._captured:
            x, shift, wkv = self._run(*inputs)
            return x, State(shift, wkv)
        if self._replay is None:
            self._replay = Replay(self._run, *inputs)
        x, shift, wkv = self._replay(*inputs)
        return x.clone(), State(shift.clone(), wkv.clone())

    def _run(self, tokens: Tensor, past: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run the layers: tokens [T], past [L, 1, 2, C], before [L, 1, H, 64, 64] -> x [1, C], and
        the two after.
        """
        w = self._parameters
        x, shift, wkv = (
            w.embeddings[tokens].float(),
            torch.empty_like(past),
            before.clone(memory_format=torch.contiguous_format),
        )
        past, delta, first = past.contiguous(), None, None
        for i, layer in enumerate(w.layers):
            x, mixed = self._mix(
                x, delta, layer.norm_att, layer.mixes, past[i, 0, 0], shift[i, 0, 0]
            )
            out, first = self._time_mix(layer, mixed, first, wkv[i])
            x, mixed = self._mix(
                x, out, layer.norm_ffn, layer.mix_ffn.unsqueeze(0), past[i, 0, 1], shift[i, 0, 1]
            )
            delta = self._project(mixed[0], layer.ffn_key).relu_().square_() @ self._dense(
                layer.ffn_value
            )
        x = x[-1:] if delta is None else x[-1:] + delta[-1:]
        return x.to(w.dtype), shift, wkv

    def _mix(
        self, x: Tensor, delta: Tensor | None, by: Norm, mixes: Tensor, past: Tensor, shift: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return x [T, C] + delta, and its mixed norm [mixes, T, C]."""
        out = torch.empty(len(mixes), *x.shape, dtype=self._parameters.dtype, device=x.device)
        total = x if delta is None else torch.empty_like(x)
        tensors = {
            "x": x,
            "delta": out if delta is None else delta,
            "weight": by.weight,
            "bias": by.bias,
            "mixes": mixes,
        }
        tensors |= {"past": past, "sum": total, "out": out, "shift": shift}
        constants = {
            "MIXES": len(mixes),
            "ADDED": delta is not None,
            "BLOCK": 1 << (self._channels - 1).bit_length(),
        }
        self._start(kernels.mix_rows, self._length, tensors, constants, 8)
        return total, out

    def _time_mix(
        self, layer: Layer, mixed: Tensor, first: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Mix over time: mixed [6, T, C] and the first layer's values (None in it) -> [T, C], those
        values.

        `mixed` is of r, k, v, decay, rate and gate. The state changes in place.
        """
        r, k, v = (
            self._project(x, m)
            for x, m in zip(mixed, (layer.receptance, layer.key, layer.value), strict=False)
        )
        decay = _low_rank(mixed[3], layer.decay, torch.tanh)
        rate, gate = _low_rank(mixed[4], layer.rate), _low_rank(mixed[5], layer.gate, torch.sigmoid)
        share = None if first is None else _low_rank(mixed[2], layer.residual)
        in_chunks = self._in_chunks
        w = torch.empty(r.shape, device=r.device)
        vectors = r.new_empty(4, *r.shape, dtype=r.dtype if in_chunks else torch.float32)
        given = {
            "k": k,
            "v": v,
            "decay": decay,
            "rate": rate,
            "share": rate if share is None else share,
            "first": v if first is None else first,
        }
        biases = [
            rank.bias
            for rank in (layer.decay, layer.rate, layer.decay if first is None else layer.residual)
        ]
        given |= {
            f"{name}_bias": bias
            for name, bias in zip(("decay", "rate", "share"), biases, strict=True)
            if bias is not None
        }
        blocks = -(-self._length // _TOKENS) * (self._channels // HEAD)
        sizes = {"HEAD": HEAD, "TOKENS": _TOKENS}
        tensors = given | {"k_k": layer.k_k, "k_a": layer.k_a, "w": w, "out": vectors}
        constants = {"FIRST": first is None, "LOG": in_chunks, **sizes}
        self._start(kernels.prepare_recurrence, blocks, tensors, constants, 4)
        y = (_in_chunks if in_chunks else self._scan)(r, w, vectors, state)
        out = torch.empty_like(r)
        tensors = {"y": y, "r": r, "vectors": vectors, "gate": gate, "r_k": layer.r_k}
        tensors |= {"weight": layer.norm_wkv.weight, "bias": layer.norm_wkv.bias, "out": out}
        self._start(kernels.finish_recurrence, blocks, tensors, sizes, 4)
        return self._project(out, layer.output), v if first is None else first

    @property
    def _in_chunks(self) -> bool:
        """Return True if the recurrence is computed in chunks and not token by token."""
        return self._length >= CHUNKS_FROM and self._parameters.dtype in CHUNKED

    def _scan(self, r: Tensor, w: Tensor, vectors: Tensor, state: Tensor) -> Tensor:
        """Compute the recurrence token by token: y [T, C]. The state changes in place."""
        y = torch.empty_like(w)
        tensors = {"r": r, "w": w, "vectors": vectors, "state": state, "y": y}
        shared = {"HEAD": HEAD, "ROWS": SCAN.rows, "AHEAD": SCAN.ahead}
        self._start(kernels.scan, self._channels // SCAN.rows, tensors, shared, SCAN.warps)
        return y

    def _project(self, x: Tensor, matrix: Matrix) -> Tensor:
        return functional.linear(x, self._dense(matrix))

    def _dense(self, matrix: Matrix) -> Tensor:
        """Return a matrix in floating point, converted anew each time if it is kept in int8."""
        if matrix.scales is None:
            return matrix.values
        out = torch.empty(
            matrix.values.shape, dtype=self._parameters.dtype, device=matrix.values.device
        )
        rows, columns = out.shape
        tensors = {"matrix": matrix.values, "scales": matrix.scales, "out": out}
        self._start(
            kernels.widen,
            rows,
            tensors,
            {"BLOCK": 1 << (columns - 1).bit_length()},
            4,
            columns=columns,
        )
        return out

    def _start(
        self,
        kernel: object,
        grid: int,
        tensors: Mapping[str, Tensor],
        constants: Mapping[str, object],
        warps: int,
        **sizes: int,
    ) -> None:
        """Plan or launch a kernel. The tensors of all layers are alike, so that one plan serves
        all.
        """
        types = tuple((name, tensor.dtype) for name, tensor in tensors.items())
        launch = self._launch(
            kernel, grid, types, tuple(constants.items()), warps, tuple(sizes.items())
        )
        launch(*tensors.values())

    def _planned(
        self,
        kernel: object,
        grid: int,
        types: tuple[tuple[str, torch.dtype], ...],
        constants: tuple[tuple[str, object], ...],
        warps: int,
        sizes: tuple[tuple[str, int], ...],
    ) -> _Launch:
        arguments: dict[str, Pointer | int] = {
            f"{name}_ptr": Pointer(dtype) for name, dtype in types
        }
        arguments |= dict(sizes) or {"length": self._length, "channels": self._channels}
        call = KernelCall(
            kernel, grid, arguments, dict(constants), {"num_warps": warps, "num_stages": 1}
        )
        self.calls.append(call)
        return prepare(call, self._parameters.device)


def _in_chunks(r: Tensor, w: Tensor, vectors: Tensor, state: Tensor) -> Tensor:
    """Compute the recurrence with matrix products: y [T, C]. The state changes in place."""
    r, w, k, v, a, b = (x.reshape(1, len(x), -1, HEAD) for x in (r, w, *vectors))
    found = linear_attention(
        r, k, v, kind="rwkv7", decay=w, a=a, b=b, state=state.mT, backend="triton"
    )
    state.copy_(found.state.mT)
    return found.out.flatten(2)[0]


def _low_rank(
    x: Tensor, rank: Rank, squash: Callable[[Tensor], Tensor] = lambda inner: inner
) -> Tensor:
    """Apply a low-rank map without its bias: x [T, C] -> [T, C]."""
    return squash(functional.linear(x, rank.down)) @ rank.up
