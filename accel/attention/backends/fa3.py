"""Run FlashAttention-3 as the package vllm builds it, if it is installed.

The build takes sequences end to end only, and has no backward pass. It is loaded without importing
vllm itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib import util
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import (
    Backend,
    align_rows,
    half_precision_on_ampere,
    head_size_up_to,
    needs_hopper,
    no_bias,
    on_cuda,
    own_key_visible,
)
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.problem import Problem
from gpudeck.accel.lessons.records import Direction
from gpudeck.language.text import Text, phrase

_FEW = 8
"""Up to this number of sequences, launching each of them costs less than copying them all."""
_LIBRARY = Path("vllm_flash_attn") / "_vllm_fa3_C.abi3.so"
_NAMED = ("out", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
_OPTIONS = ("softmax_scale", "is_causal", "window_size_left", "window_size_right", "softcap")


class VllmFlashAttention3(Backend):
    """FlashAttention-3, which works on [all tokens, heads, D] and aligns bottom-right."""

    layout = "bshd"

    def missing(self) -> Text | None:
        """Return that the package is not there, or None."""
        if find_library():
            return None
        return phrase("is not installed (it is part of the package vllm)")

    def load(self) -> None:
        """Load the library, and check that its operation takes what is passed here."""
        path = find_library()
        if path is None:
            raise ImportError(f"no {_LIBRARY.name}")
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
        taken = {a.name for a in torch.ops._vllm_fa3_C.fwd.default._schema.arguments}
        if missing := [name for name in (*_NAMED, *_OPTIONS) if name not in taken]:
            raise ImportError(f"{path} has no argument {missing[0]}")

    def rules(self, p: Problem, direction: Direction) -> Iterator[Text]:
        """Yield every reason against the pass."""
        yield from on_cuda(p)
        yield from half_precision_on_ampere(p)
        if p.capability is not None and p.capability != (9, 0):
            yield needs_hopper(p)
        yield from head_size_up_to(256, p)
        yield from no_bias(p)
        yield from own_key_visible(p)
        if direction == "backward":
            yield phrase("has no backward pass")
        if p.blind or (p.windowed and p.seq_q > p.seq_k):
            yield phrase("leaves queries that see no key to others here")

    def takes_narrow(self, p: Problem) -> bool:
        """Return True for the sizes of MLA, for which it has a kernel."""
        return (p.head_dim, p.value_dim) == (192, 128)

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, with head sizes padded to a multiple of 8.

        It is one launch if the tokens of q, k and v lie end to end, as they do in [B,S,H,D]. Where
        they do not, the sequences are launched one by one, or copied if they are many.
        """
        p, wide = problem, align_rows(x)
        batch, heads, length, _ = wide.q.shape
        out = wide.q.new_empty(batch, length, heads, wide.v.shape[3])
        if x.ragged is not None:
            lse = _run(wide, p, x.ragged.starts_q, x.ragged.starts_k, out)
        else:
            step = 1 if batch <= _FEW and not all(map(_end_to_end, wide[:3])) else batch
            starts_q, starts_k = (_starts(step, n, p.device) for n in (p.seq_q, p.seq_k))
            parts = zip(*(t.tensor_split(batch // step) for t in (*wide[:3], out)), strict=True)
            sums = [_run(Inputs(q, k, v), p, starts_q, starts_k, o) for q, k, v, o in parts]
            lse = sums[0] if len(sums) == 1 else torch.cat(sums)
        return out.transpose(1, 2)[..., : p.out_dim], lse


def _run(x: Inputs, p: Problem, starts_q: Tensor, starts_k: Tensor, out: Tensor) -> Tensor:
    """Write the output of sequences that begin at these tokens [B,S,H,D], and return lse."""
    q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in x[:3])
    none = None
    _, lse, *_ = torch.ops._vllm_fa3_C.fwd(
        q, k, v, none, none, none, out.flatten(0, 1), starts_q, starts_k, none, none, none,
        p.seq_q, p.seq_k, none, none, none, none, none, none, none, none, none, p.scale,
        p.causal, -1 if p.left is None else p.left,
        -1 if p.right is None or p.causal else p.right, p.softcap, True, none, 0, none, 0,
        none, 1, 0, none,
    )  # fmt: skip
    found: Tensor = lse.unflatten(1, out.shape[:2]).transpose(0, 1)
    return found


def _end_to_end(x: Tensor) -> bool:
    """Return whether the tokens of a batch [B,H,S,D] can be numbered without a copy."""
    return x.shape[0] == 1 or x.stride(0) == x.shape[2] * x.stride(2)


@lru_cache(maxsize=1)
def find_library() -> str | None:
    """Return the path of the library that vllm brings, or None."""
    package = util.find_spec("vllm")
    for place in (package and package.submodule_search_locations) or ():
        if (Path(place) / _LIBRARY).is_file():
            return str(Path(place) / _LIBRARY)
    return None


@lru_cache(maxsize=256)
def _starts(sequences: int, length: int, device: torch.device) -> Tensor:
    """Return where sequences of one length begin."""
    return torch.arange(sequences + 1, dtype=torch.int32, device=device) * length
