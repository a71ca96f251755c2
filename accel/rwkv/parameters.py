"""Arrange the weights for the steps: each tensor of a layer by its role, all in a few arenas.

The rows of a matrix are contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.rwkv.storage import Arena, Matrix
from gpudeck.accel.rwkv.weights.shapes import TUNED


class Norm(NamedTuple):
    """Weight and bias of a LayerNorm, [C] each."""

    weight: Tensor
    bias: Tensor


class Rank(NamedTuple):
    """A low-rank map x -> bias + f(x down^T) up. Its rank may be 0."""

    bias: Tensor | None
    """[C]"""
    down: Tensor
    """[rank, C]"""
    up: Tensor
    """[rank, C]"""


class Layer(NamedTuple):
    """The weights of one layer."""

    norm_att: Norm
    mixes: Tensor
    """[6, C] token-shift coefficients of r, k, v, decay, rate, gate."""
    receptance: Matrix
    key: Matrix
    value: Matrix
    output: Matrix
    decay: Rank
    rate: Rank
    residual: Rank
    """The share of the first layer's values that is mixed in; rank 0 in the first layer."""
    gate: Rank
    k_k: Tensor
    k_a: Tensor
    r_k: Tensor
    """[C]"""
    norm_wkv: Norm
    norm_ffn: Norm
    mix_ffn: Tensor
    """[C]"""
    ffn_key: Matrix
    """[F, C]"""
    ffn_value: Matrix
    """[F, C]: one row for each input."""


class Parameters(NamedTuple):
    """The weights of a whole model."""

    embeddings: Tensor
    """[V, C], with the first normalisation applied, which depends on the embeddings alone."""
    layers: tuple[Layer, ...]
    norm: Norm
    head: Matrix
    """[V, C]"""
    vectors: Tensor
    """The arena of everything but matrices; also that of the matrices if they have the
    same dtype.
    """
    values: Tensor
    """The arena of the matrices."""
    scales: Tensor
    """The arena of their scales; empty unless they are in int8."""
    start: Tensor | None
    """[layers, H, 64, 64] fp32, values by keys: the memory before the first token; None: zeros."""

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.vectors.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the activations."""
        return self.vectors.dtype

    @property
    def nbytes(self) -> int:
        """Return the bytes of all weights."""
        arenas = {t.data_ptr(): t for t in (self.vectors, self.values)}.values()
        return sum(t.nbytes for t in (self.embeddings, *arenas, self.scales))


MIXES = ("x_r", "x_k", "x_v", "x_w", "x_a", "x_g")
_MATRICES = ("receptance.weight", "key.weight", "value.weight", "output.weight", "head.weight")


def arrange(w: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> Parameters:
    """Arrange canonical weights (see `gpudeck.accel.rwkv.weights`) on a device.

    They are removed from `w` one by one, so that no two copies of all exist at once.

    Args:
        w: Weights by their canonical names.
        device: The device.
        dtype: Of the weights. int8 keeps matrices in int8 with a scale a row, and computes in fp32
            on a CPU and in bf16 on a GPU.
    """
    return _Arranger(w, device, dtype).parameters()


def _by_layer(names: Iterable[str], part: str) -> list[str]:
    """Return the names of a part of all layers, in the order of the layers."""
    return sorted((n for n in names if n.endswith(part)), key=lambda n: int(n.split(".")[1]))


class _Arranger:
    def __init__(self, w: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> None:
        tuned = [w.pop(name) for name in _by_layer(w, TUNED)]
        self._start = None
        if tuned:
            self._start = torch.stack(tuned).to(device, torch.float32).transpose(-1, -2)
        self._w, self._device, self._int8 = w, device, dtype == torch.int8
        self._dtype = (
            (torch.float32 if device.type == "cpu" else torch.bfloat16) if self._int8 else dtype
        )
        matrices = {name: t for name, t in w.items() if name.endswith(_MATRICES)}
        rows = (
            t.shape[1] if name.endswith("ffn.value.weight") else t.shape[0]
            for name, t in matrices.items()
        )
        sizes, others = (
            [
                t.numel()
                for name, t in w.items()
                if (name in matrices) == of and name != "emb.weight"
            ]
            for of in (True, False)
        )
        self._values = Arena(sizes if self._int8 else sizes + others, device, dtype)
        self._vectors = Arena(others, device, self._dtype) if self._int8 else self._values
        self._scales = Arena(rows if self._int8 else (), device, torch.float32)

    def parameters(self) -> Parameters:
        """Arrange all weights."""
        w = self._w
        count = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("blocks."))
        first = Norm(
            *(
                w.pop(f"blocks.0.ln0.{part}").to(self._device, torch.float32)
                for part in ("weight", "bias")
            )
        )
        raw = w.pop("emb.weight").to(self._device, torch.float32)
        embeddings = functional.layer_norm(raw, first.weight.shape, first.weight, first.bias).to(
            self._dtype
        )
        layers = tuple(self._layer(f"blocks.{i}.") for i in range(count))
        norm, head = self._norm("ln_out"), self._matrix("head")
        return Parameters(
            embeddings, layers, norm, head, self._vectors.flat, self._values.flat,
            self._scales.flat, self._start,
        )  # fmt: skip

    def _layer(self, block: str) -> Layer:
        att, ffn = block + "att.", block + "ffn."
        return Layer(
            norm_att=self._norm(block + "ln1"),
            mixes=self._vectors.put(torch.stack([self._w.pop(att + mix) for mix in MIXES])),
            receptance=self._matrix(att + "receptance"),
            key=self._matrix(att + "key"),
            value=self._matrix(att + "value"),
            output=self._matrix(att + "output"),
            decay=self._rank(att + "w"),
            rate=self._rank(att + "a"),
            residual=self._rank(att + "v"),
            gate=self._rank(att + "g"),
            k_k=self._vector(att + "k_k"),
            k_a=self._vector(att + "k_a"),
            r_k=self._vectors.put(self._w.pop(att + "r_k").flatten()),
            norm_wkv=self._norm(att + "ln_x"),
            norm_ffn=self._norm(block + "ln2"),
            mix_ffn=self._vector(ffn + "x_k"),
            ffn_key=self._matrix(ffn + "key"),
            ffn_value=self._matrix(ffn + "value", turned=True),
        )

    def _vector(self, name: str) -> Tensor:
        return self._vectors.put(self._w.pop(name))

    def _norm(self, name: str) -> Norm:
        return Norm(self._vector(name + ".weight"), self._vector(name + ".bias"))

    def _rank(self, name: str) -> Rank:
        if name + "1" not in self._w:  # The first layer has no value residual.
            nothing = self._vectors.flat[:0].view(0, 0)
            return Rank(None, nothing, nothing)
        bias = self._vector(name + "0") if name + "0" in self._w else None
        return Rank(bias, self._vectors.put(self._w.pop(name + "1").T), self._vector(name + "2"))

    def _matrix(self, name: str, turned: bool = False) -> Matrix:
        weight = self._w.pop(name + ".weight").to(self._device)
        weight = weight.T if turned else weight
        if not self._int8:
            return Matrix(self._values.put(weight))
        rounded = Matrix.int8(weight)
        assert rounded.scales is not None
        return Matrix(self._values.put(rounded.values), self._scales.put(rounded.scales))
