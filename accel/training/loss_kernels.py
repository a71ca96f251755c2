"""Turn scores into their gradient in place, in Triton: one program a token."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpudeck.accel.runtime.named import launch

_OPTIONS = {"num_warps": 8, "num_stages": 2}
_COLUMNS = 4096


@triton.jit
def turn_scores(
    scores_ptr, targets_ptr, losses_ptr, scale_ptr, columns, softcap,
    CAPPED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the scaled loss of a token, and the gradient of its scores over them.

    A target below 0 has neither.
    """
    row = tl.program_id(0).to(tl.int64)
    scores_ptr += row * columns
    target = tl.load(targets_ptr + row)
    scale = tl.load(scale_ptr)
    factor = tl.where(target < 0, 0.0, scale)
    high = tl.full([], -float("inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    for first in range(0, columns, COLUMNS):
        at = first + tl.arange(0, COLUMNS)
        s = tl.load(scores_ptr + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        if CAPPED:
            s = softcap * (2 * tl.sigmoid(2 * s / softcap) - 1)
            s = tl.where(at < columns, s, -float("inf"))
        higher = tl.maximum(high, tl.max(s, 0))
        total = total * tl.exp(high - higher) + tl.exp(s - higher)
        high = higher
    log_sum = high + tl.log(tl.sum(total, 0))
    wanted = tl.load(scores_ptr + tl.maximum(target, 0)).to(tl.float32)
    if CAPPED:
        wanted = softcap * (2 * tl.sigmoid(2 * wanted / softcap) - 1)
    tl.store(losses_ptr + row, tl.where(target < 0, 0.0, (log_sum - wanted) * scale))
    tl.debug_barrier()  # the score of the target is read before another thread writes over it
    for first in range(0, columns, COLUMNS):
        at = first + tl.arange(0, COLUMNS)
        s = tl.load(scores_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        slope = factor
        if CAPPED:
            bent = 2 * tl.sigmoid(2 * s / softcap) - 1
            s, slope = softcap * bent, factor * (1 - bent * bent)
        gradient = (tl.exp(s - log_sum) - tl.where(at == target, 1.0, 0.0)) * slope
        tl.store(scores_ptr + at, gradient.to(scores_ptr.dtype.element_ty), mask=at < columns)


def turn(scores: Tensor, targets: Tensor, scale: float, softcap: float) -> Tensor:
    """Write the gradients of scores over them, and return the scaled loss, float32 [].

    Args:
        scores: [n, vocabulary], contiguous, on a GPU.
        targets: int64 [n]; below 0: none.
        scale: the factor of the loss.
        softcap: c > 0 turns each score s into c tanh(s/c).
    """
    losses = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    # in memory, as it differs from step to step, and launches are prepared for each number
    factor = torch.full((1,), scale, dtype=torch.float32, device=scores.device)
    launch(
        turn_scores,
        (len(scores), 1, 1),
        {
            "scores_ptr": scores, "targets_ptr": targets, "losses_ptr": losses,
            "scale_ptr": factor,
        },
        {"columns": scores.shape[1], "softcap": softcap or 1.0},
        {"CAPPED": softcap > 0, "COLUMNS": _COLUMNS},
        _OPTIONS,
    )  # fmt: skip
    return losses.sum()
