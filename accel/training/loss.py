"""The cross-entropy of next tokens, without holding the scores of all tokens at once.

The scores of a part of the tokens are computed, turned into their gradient in place, and multiplied
on to the gradients of hidden states and output matrix, all in the forward pass. So no more than one
part exists, and no product is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

IGNORED = -1
"""The target of a token that has no loss."""
_PART_BYTES = 2**31
"""About the most bytes of a part's scores: few large products keep a GPU busy."""
_PART_SHARE = 32
"""The scores of a part are at most this part of a GPU's memory; a CPU counts as one of 16 GiB."""
_ROWS_STEP = 128
"""The tokens of a part are a multiple of it, for aligned products."""


def cross_entropy(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    scale: float,
    softcap: float = 0.0,
) -> Tensor:
    """Return `scale` times the sum of the targets' negative log-likelihoods, float32 [].

    Args:
        hidden: [tokens, width], float32 or bfloat16.
        head: the output matrix [vocabulary, width], which is rounded to the dtype of `hidden` for
            the products; it may be frozen.
        targets: int64 [tokens]; `IGNORED` has no loss and no gradient.
        scale: usually 1 / the number of targets of the whole step.
        softcap: c > 0 turns each score s into c tanh(s/c).
    """
    wanted = torch.is_grad_enabled()  # it is off within forward()
    loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets, scale, softcap, wanted
    )
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        targets: Tensor,
        scale: float,
        softcap: float,
        wanted: bool,
    ) -> Tensor:
        matrix = head.to(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_head = None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for begin, end in _parts(hidden, head.shape[0] * hidden.element_size()):
            part = hidden[begin:end]
            scores = part @ matrix.T
            losses, gradient = _turn(scores, targets[begin:end], scale, softcap)
            total += losses
            if d_hidden is None:
                continue
            torch.matmul(gradient, matrix, out=d_hidden[begin:end])
            if head.requires_grad:
                d_head = _add_product(d_head, gradient.T, part, head.dtype)
        ctx.save_for_backward(d_hidden, d_head)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_head = ctx.saved_tensors
        d_head = None if d_head is None else d_head.mul_(grad)
        return d_hidden.mul_(grad.to(d_hidden.dtype)), d_head, *(None,) * 4


def _add_product(total: Tensor | None, a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `total` plus a b in `dtype`; on a GPU the product itself adds, in float32."""
    if a.dtype == dtype or not a.is_cuda:
        product = (a @ b).to(dtype)
        return product if total is None else total.add_(product)
    if total is None:
        return torch.mm(a, b, out_dtype=dtype)
    return torch.addmm(total, a, b, out_dtype=dtype, out=total)


def _parts(hidden: Tensor, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first token of each part, and the one after its last.

    Parts are about equal: a small last one would leave most of a GPU idle.
    """
    count, memory = len(hidden), 2**34
    if hidden.is_cuda:
        memory = torch.cuda.get_device_properties(hidden.device).total_memory
    most = min(_PART_BYTES, memory // _PART_SHARE)
    parts = -(-count * row_bytes // most) or 1
    rows = -(-count // (parts * _ROWS_STEP)) * _ROWS_STEP or _ROWS_STEP
    for begin in range(0, count, rows):
        yield begin, min(begin + rows, count)


def _turn(scores: Tensor, targets: Tensor, scale: float, softcap: float) -> tuple[Tensor, Tensor]:
    """Return the scaled loss of a part, and the gradient in the dtype of the scores; on a GPU it
    takes their place."""
    if scores.is_cuda:
        from gpudeck.accel.training.loss_kernels import turn

        return turn(scores, targets, scale, softcap), scores
    losses, gradient = part_entropy(scores.float(), targets, scale, softcap)
    return losses, gradient.to(scores.dtype)


def part_entropy(
    scores: Tensor, targets: Tensor, scale: float, softcap: float
) -> tuple[Tensor, Tensor]:
    """Return the scaled loss of a part, and its gradient by the scores.

    Shapes: scores float32 [n, vocabulary], targets int64 [n]; the results are [] and like scores.
    """
    slopes: Tensor | float = 1.0
    if softcap:
        bent = torch.tanh(scores / softcap)
        scores, slopes = softcap * bent, 1 - bent.square()
    kept = (targets != IGNORED)[:, None]
    columns = targets.clamp(min=0)[:, None]
    log_sums = torch.logsumexp(scores, 1, keepdim=True)
    losses = (log_sums - scores.gather(1, columns)) * kept
    shares = torch.exp(scores - log_sums)
    hits = torch.arange(scores.shape[1], device=scores.device) == columns
    return losses.sum() * scale, (shares - hits.float()) * (kept * scale) * slopes
