"""Run the kernels of others for the problems of the benchmark of linear attention.

Each peer has its own way to spell a problem, and one that cannot compute it raises an error.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tests.benchmarks.linear_attention_inputs import DEVICE, FALL, Inputs

Run = Callable[[Inputs], Tensor]
"""Computes the output of a problem."""


class Peer(NamedTuple):
    """Describe a peer: how it runs, its packages, and what it needs."""

    run: Run
    packages: tuple[str, ...]
    environment: Mapping[str, str] = {}
    prepare: Callable[[Inputs], Inputs] = lambda x: x
    """Converts the inputs to the dtypes that the peer takes. This is not timed."""

    def compute(self, x: Inputs) -> Tensor:
        """Return the output for inputs as ours takes them."""
        return self.run(self.prepare(x))

    def choose(self) -> None:
        """Prepare this process for the peer; fla-core asks the environment at every call."""
        os.environ.update(self.environment)


def fla(x: Inputs) -> Tensor:
    """Run fla-core, which is told what the decays cannot be below where that makes it faster."""
    t, scale = x.tensors, x.tensors["q"].shape[3] ** -0.5
    ops: Any = importlib.import_module(f"fla.ops.{_MODULES[x.kind]}")
    if x.kind == "gdn":
        return ops.chunk_gated_delta_rule(t["q"], t["k"], t["v"], t["decay"], t["beta"], scale)[0]
    if x.kind == "kda":
        vectors = (t[name] for name in ("q", "k", "v", "decay", "beta"))
        return ops.chunk_kda(*vectors, scale, safe_gate=True)[0]
    if x.kind == "rwkv7":
        vectors = (t[name] for name in ("q", "decay", "k", "v", "a", "b"))
        return ops.chunk_rwkv7(*vectors, lower_bound=-FALL)[0]
    if x.kind == "ssd":
        return ops.chunk_simple_gla(t["q"], t["k"], t["v"], g=t["decay"], scale=1.0)[0]
    if x.kind == "gla":
        return ops.chunk_gla(t["q"], t["k"], t["v"], t["decay"], scale)[0]
    return ops.chunk_retention(t["q"], t["k"], t["v"], scale)[0]


_MODULES = {
    "gdn": "gated_delta_rule",
    "kda": "kda",
    "rwkv7": "rwkv7",
    "ssd": "simple_gla",
    "gla": "gla",
    "retention": "retention",
}


def flash_qla(x: Inputs) -> Tensor:
    """Run FlashQLA, which computes the gated delta rule with heads of 128."""
    ops: Any = importlib.import_module("flash_qla")
    t = x.tensors
    vectors = (t[name] for name in ("q", "k", "v", "decay", "beta"))
    return ops.chunk_gated_delta_rule(*vectors, scale=t["q"].shape[3] ** -0.5)[0]


def cudnn(x: Inputs) -> Tensor:
    """Run the kernels of cuDNN's frontend, which computes KDA with heads of 128."""
    ops: Any = importlib.import_module("cudnn.linear_attention")
    t = {name: tensor.flatten(0, 1) for name, tensor in x.tensors.items()}
    vectors = (t[name] for name in ("q", "k", "v", "decay", "beta"))
    out = ops.kimi_delta_attention(*vectors, _starts(*x.tensors["q"].shape[:2]))[0]
    return out.view(x.tensors["v"].shape)


@cache
def _starts(batch: int, length: int) -> Tensor:
    """Return where the sequences begin in one row of all tokens, and where the last one ends."""
    return length * torch.arange(batch + 1, device=DEVICE, dtype=torch.int32)


def _with_beta_in_float32(x: Inputs) -> Inputs:
    return Inputs(x.kind, {**x.tensors, "beta": x.tensors["beta"].float()})


_WITHOUT_TILELANG = {"FLA_TILELANG": "0", "FLA_FLASH_QLA": "0"}
_WITH_TILELANG = {"FLA_TILELANG": "1", "FLA_FLASH_QLA": "0"}
PEERS = {
    "fla": Peer(fla, ("fla-core",), _WITHOUT_TILELANG),
    "fla-tilelang": Peer(fla, ("fla-core", "tilelang"), _WITH_TILELANG),
    "flashqla": Peer(flash_qla, ("flash-qla", "tilelang")),
    "cudnn": Peer(cudnn, ("nvidia-cudnn-frontend",), prepare=_with_beta_in_float32),
}
"""By name; fla-core takes tilelang's kernels for what it has of them if it is installed."""
FLA = ("fla", "fla-tilelang")
"""The peers that choose among configurations of their kernels; all of them are measured here."""
