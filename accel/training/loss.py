"""The cross-entropy of next tokens, without holding the scores of all tokens at once.

The scores of a part of the tokens are computed, turned into their gradient in place, and multiplied
on to the gradients of hidden states and output matrix, all in the forward pass. So no more than one
part exists, and no product is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

IGNORED = -1
"""The target of a token that has no loss."""
_PART_BYTES = 2**28
"""The size of the scores of a part in float32: large enough to keep a GPU busy."""


Entropy = Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor]]


def cross_entropy(
    hidden: Tensor,
    head: Tensor,
    targets: Tensor,
    scale: float,
    entropy: Entropy | None = None,
    softcap: float = 0.0,
) -> Tensor:
    """Return `scale` times the sum of the targets' negative log-likelihoods, float32 [].

    Args:
        hidden: [tokens, width], float32 or bfloat16.
        head: the output matrix [vocabulary, width], which is rounded to the dtype of `hidden` for
            the products; it may be frozen.
        targets: int64 [tokens]; `IGNORED` has no loss and no gradient.
        scale: usually 1 / the number of targets of the whole step.
        entropy: `part_entropy` as torch.compile made it; itself by default.
        softcap: c > 0 turns each score s into c tanh(s/c).
    """
    entropy = part_entropy if entropy is None else entropy
    wanted = torch.is_grad_enabled()  # it is off within forward()
    loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets, scale, softcap, entropy, wanted
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
        entropy: Entropy,
        wanted: bool,
    ) -> Tensor:
        matrix = head.to(hidden.dtype)
        d_hidden = torch.empty_like(hidden) if wanted else None
        d_head = torch.zeros_like(head) if wanted and head.requires_grad else None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        rows = max(1, _PART_BYTES // (4 * head.shape[0]))
        for begin in range(0, len(hidden), rows):
            part, wants = hidden[begin : begin + rows], targets[begin : begin + rows]
            scores = (part @ matrix.T).float()
            losses, gradient = entropy(scores, wants, scale, softcap)
            total += losses
            if d_hidden is None:
                continue
            gradient = gradient.to(hidden.dtype)
            torch.matmul(gradient, matrix, out=d_hidden[begin : begin + rows])
            if d_head is not None:
                d_head += gradient.T @ part
        ctx.save_for_backward(d_hidden, d_head)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_head = ctx.saved_tensors
        d_head = None if d_head is None else d_head.mul_(grad)
        return d_hidden.mul_(grad.to(d_hidden.dtype)), d_head, *(None,) * 5


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
