"""The cells of FlexAttention's own benchmark matrix, and their tensors, masks and exact answers.

The matrix is that of attention-gym's flash_h200.yaml: a batch of 4, 16 heads over 4 or 16, head
sizes of 64 and 128, 2,048 to 32,768 tokens, bfloat16, forward and backward. As there, ALiBi is
causal, a window is of 512 keys, and documents are 4 of random lengths in one row of 4 x S tokens,
causal.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from gpudeck.accel.attention.flex import recognise
from gpudeck.accel.attention.reference import reference

CUDA = torch.device("cuda", 0)
BATCH, HEADS, WINDOW = 4, 16, 512
KINDS = ("alibi", "causal", "documents", "window", "noop")
LENGTHS = (8192, 2048, 32768, 4096, 16384)
"""In the order of their importance, as the time may not suffice for all."""
_CHECKED_ROWS = 256
_DENSE = 20_000
"""Up to this length FlexAttention makes a mask by evaluating all pairs at once."""
_BLOCK = 128


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    kind: str
    head_dim: int
    length: int
    kv_heads: int

    @property
    def size(self) -> tuple[int, int]:
        """Return batch and length of the tensors."""
        return (1, BATCH * self.length) if self.kind == "documents" else (BATCH, self.length)


def cells() -> list[Cell]:
    """Return the matrix, the most important cells first."""
    order = itertools.product(LENGTHS, KINDS, (128, 64), (16, 4))
    return [Cell(kind, dim, length, kv) for length, kind, dim, kv in order]


class Problem:
    """Hold the tensors and functions of a cell."""

    def __init__(self, cell: Cell) -> None:
        torch.manual_seed(0)
        self.cell = cell
        batch, length = cell.size
        shapes = [(batch, n, length, cell.head_dim) for n in (HEADS, cell.kv_heads, cell.kv_heads)]
        self.q, self.k, self.v = (torch.randn(s, device=CUDA, dtype=torch.bfloat16) for s in shapes)
        self.dout = torch.randn_like(self.q)
        self.documents = self._documents() if cell.kind == "documents" else None
        self.score_mod = _alibi if cell.kind == "alibi" else None
        self.block_mask = self._mask(length)
        recognise(self.q, self.k, self.score_mod, self.block_mask)

    def time_mask(self) -> dict[str, object]:
        """Return the milliseconds that making the block mask again, and reading it, take."""
        mask_ms, again = _timed(partial(self._mask, self.cell.size[1]))
        score_mod = None if self.score_mod is None else partial(self.score_mod)  # not read yet
        read_ms, _ = _timed(partial(recognise, self.q, self.k, score_mod, again))
        return {"mask_ms": f"{mask_ms:.4g}", "read_ms": f"{read_ms:.4g}"}

    def _documents(self) -> Tensor:
        tokens = BATCH * self.cell.length
        cuts = torch.multinomial(torch.ones(tokens - 1), BATCH - 1).sort().values + 1
        return (torch.arange(tokens)[:, None] >= cuts).sum(1).to(CUDA)

    def _mask(self, length: int) -> BlockMask | None:
        documents = self.documents
        if self.cell.kind == "noop":
            return None

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            seen = i >= j
            if documents is not None:
                seen = seen & (documents[i] == documents[j])
            return seen & (i - j <= WINDOW) if self.cell.kind == "window" else seen

        if length <= _DENSE:
            return create_block_mask(visible, None, None, length, length, device=CUDA)
        return _mask_of_bands(visible, length)

    def leaves(self) -> list[Tensor]:
        """Return the tensors as new leaves of a graph of autograd."""
        return [x.detach().requires_grad_() for x in (self.q, self.k, self.v)]

    def call(self, attend: Callable[..., Any], leaves: Sequence[Tensor] = (), **more: Any) -> Any:
        """Call a function with FlexAttention's signature."""
        return attend(
            *(leaves or (self.q, self.k, self.v)), score_mod=self.score_mod,
            block_mask=self.block_mask, enable_gqa=self.cell.kv_heads != HEADS, **more,
        )  # fmt: skip

    @property
    def pairs(self) -> float:
        """Return the visible pairs of one head of the batch."""
        if self.cell.kind == "noop":
            return float(BATCH * self.cell.length**2)
        if self.documents is not None:
            return float(sum(n * (n + 1) / 2 for n in self.documents.bincount().tolist()))
        rows = torch.arange(self.cell.length)
        seen = (rows + 1).clamp(max=WINDOW + 1) if self.cell.kind == "window" else rows + 1
        return float(BATCH * seen.sum())

    def error(self, out: Tensor) -> tuple[float, float]:
        """Return the error of the last rows of the last head, and that of the plain computation."""
        exact, plain = (self._rows(dtype) for dtype in (torch.float64, torch.bfloat16))
        found = out[-1:, -1:, -_CHECKED_ROWS:].double()
        return tuple(float((x.double() - exact).norm() / exact.norm()) for x in (found, plain))  # type: ignore[return-value]

    def _rows(self, dtype: torch.dtype) -> Tensor:
        q = self.q[-1:, -1:, -_CHECKED_ROWS:].detach()
        k, v = (x[-1:, -1:].detach() for x in (self.k, self.v))
        rules: dict[str, Any] = {} if self.cell.kind == "noop" else {"causal": True}
        if self.cell.kind == "window":
            rules["window"] = (WINDOW, None)
        if self.documents is not None:
            rules["bias"] = self.documents[-_CHECKED_ROWS:, None] == self.documents
        if self.cell.kind == "alibi":
            rules["alibi"] = torch.exp2(torch.tensor([-8.0], device=CUDA))  # that of the last head
        return reference(q, k, v, dtype=dtype, **rules)


def _timed(make: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that a call took, and its result."""
    torch.cuda.synchronize()
    begun = time.perf_counter()
    made = make()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun), made


def _mask_of_bands(visible: Callable[..., Tensor], length: int) -> BlockMask:
    """Return the block mask of a function, from a block of queries at a time."""
    keys = torch.arange(length, device=CUDA)
    sums = []
    for begin in range(0, length, _BLOCK):
        rows = torch.arange(begin, begin + _BLOCK, device=CUDA)[:, None]
        sums.append(visible(keys[0], keys[0], rows, keys).view(_BLOCK, -1, _BLOCK).sum((0, 2)))
    found = torch.stack(sums)[None, None]
    full, part = found == _BLOCK**2, (found > 0) & (found < _BLOCK**2)
    lists = [
        x
        for kind in (part, full)
        for x in (
            kind.sum(3).int(),
            torch.argsort(kind.byte(), dim=3, descending=True, stable=True).int(),
        )
    ]
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=_BLOCK, mask_mod=visible)


def _alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score + (j - i) * torch.exp2(-((h + 1) * 8.0 / HEADS))
