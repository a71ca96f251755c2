"""Draw what the benchmarks of linear attention compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.linear_attention.kinds import KINDS


class Shape(NamedTuple):
    """Hold the sizes of a problem; the heads are those of the values, which share those of keys."""

    batch: int
    tokens: int
    heads: int
    size: int
    shared: int = 1

    def of(self, kind: str) -> Shape:
        """Return the sizes for a kind, which may always have heads of one size."""
        head = SIZES_OF.get(kind, self.size)
        return self._replace(heads=self.heads * self.size // head, size=head)


SHAPES = {
    "registry": (
        Shape(1, 8192, 96, 128),
        Shape(2, 16384, 16, 128),
        Shape(4, 2048, 16, 128),
        Shape(4, 4096, 64, 128),
        Shape(8, 2048, 32, 256),
        Shape(8, 1024, 8, 64),
    ),
    "flashqla": (
        Shape(1, 32768, 64, 128, 4),
        Shape(1, 32768, 8, 128, 4),
        Shape(1, 32768, 32, 128, 2),
        Shape(1, 32768, 8, 128, 2),
    ),
}
"""Those of fla-core's registry, and those of the gated delta rule that FlashQLA published times of:
16 heads of keys with 64 of values and 2 with 8 forward, 16 with 32 and 4 with 8 backward."""
SIZES_OF = {"rwkv7": 64}
"""The head size that a kind always has; its heads are more then, for the same channels."""
DEVICE = torch.device("cuda", 0)
FALL = 0.60653066
"""RWKV-7's decay of a token is at least e^-FALL."""


@dataclass(frozen=True)
class Inputs:
    """Hold the tensors of one problem by the names of `linear_attention`'s arguments."""

    kind: str
    tensors: dict[str, Tensor]

    def part(self, dtype: torch.dtype) -> Inputs:
        """Return the same in another dtype, as leaves."""
        return Inputs(
            self.kind,
            {n: x.detach().to(dtype, copy=True).requires_grad_() for n, x in self.tensors.items()},
        )


def inputs(kind: str, shape: Shape) -> Inputs:
    """Draw inputs as they are in models: keys of length 1, decays of a few percent a token."""
    batch, length, heads, size, shared = shape.of(kind)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE)

    vectors = (batch, length, heads, size)
    q, k = (drawn(batch, length, heads // shared, size) for _ in range(2))
    v = drawn(*vectors)
    tensors = {"q": q, "k": functional.normalize(k, dim=-1), "v": v}
    if KINDS[kind].decay == "head":
        tensors["decay"] = -functional.softplus(drawn(batch, length, heads) - 3)
    elif kind == "rwkv7":
        tensors["decay"] = -FALL * drawn(*vectors).sigmoid()
    elif KINDS[kind].decay == "channel":
        tensors["decay"] = -functional.softplus(drawn(*vectors) - 3)
    if "beta" in KINDS[kind].needs:
        tensors["beta"] = drawn(batch, length, heads).sigmoid()
    if kind == "rwkv7":
        erased = functional.normalize(drawn(*vectors), dim=-1)
        tensors |= {"a": -erased, "b": erased * drawn(*vectors).sigmoid()}
    return Inputs(
        kind,
        {n: (x if n == "decay" else x.bfloat16()).requires_grad_() for n, x in tensors.items()},
    )
