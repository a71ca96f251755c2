"""Attention as a job: `python -P -m accel.workloads.attention --seq=16384 ...` (see `accel.workloads.catalog` for the parameters)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from accel.result import Check
from accel.workloads.harness import Task, main, require
from accel.workloads.options import Values

if TYPE_CHECKING:
    from torch import Tensor

    from accel.attention.problem import Problem
    from accel.runtime.capability import Device

WHOLE_UP_TO = 1 << 24
"""(query, key) pairs over all heads; up to here every row is checked."""
SAMPLED_HEADS = 8
SAMPLED_ROWS = 64
ATOL = 4e-6
"""Relative error allowed beside the rule's factor 2: fused float32 kernels may use an exponential good to 20 units in the last place."""


def prepare(values: Values, device: Device) -> Task:
    """Random inputs of the shape asked for, standard normal."""
    import torch

    from accel.attention import attention, choose

    problem = _problem(values, device)
    choice = choose(problem, values.text("backend"))
    require(device, _bytes(problem, choice.backend))
    q_shape = (problem.batch, problem.heads, problem.seq_q, problem.head_dim)
    kv_shape = (problem.batch, problem.kv_heads, problem.seq_k, problem.head_dim)
    q, k, v = (torch.randn(shape, dtype=problem.dtype, device=problem.device) for shape in (q_shape, kv_shape, kv_shape))

    def call() -> Tensor:
        return attention(q, k, v, causal=problem.causal, backend=choice.backend)

    reason = "named by the user" if values.text("backend") != "auto" else choice.reason
    return Task(choice.backend, reason, call, lambda: compare(call(), q, k, v, problem), problem.flops)


def compare(out: Tensor, q: Tensor, k: Tensor, v: Tensor, problem: Problem) -> tuple[Check, ...]:
    """Hold `out` against the float64 reference, whole or, where it is large, in sampled rows of sampled heads.

    The bound is the rule of flash-attention's own tests: at most twice the error of the plain computation in the inputs' dtype, plus ATOL;
    here for the relative errors in the Euclidean and in the maximum norm.
    """
    import torch

    from accel.attention.reference import reference_rows

    heads, rows = _sample(problem)
    rows = rows.to(out.device)
    got: list[Tensor] = []
    exact: list[Tensor] = []
    plain: list[Tensor] = []
    for head in heads:
        b, h = divmod(head, problem.heads)
        got.append(out[b, h, rows].double())
        for answers, dtype in ((exact, torch.float64), (plain, problem.dtype)):
            answers.append(reference_rows(q, k, v, batch=b, head=h, rows=rows, causal=problem.causal, dtype=dtype).double())
    ours, truth, rule = (torch.stack(x) for x in (got, exact, plain))
    where = f"{len(rows)} rows of {len(heads)} heads"
    broken = int((~torch.isfinite(out)).sum()) / out.numel()
    checks = [Check("share of elements that are not finite", broken, 0.0)]
    if broken:
        return tuple(checks)  # the errors would be no numbers
    for name, order in (("relative error", 2.0), ("largest error", float("inf"))):
        size, error, allowed = (float(torch.linalg.vector_norm(x, ord=order)) for x in (truth, ours - truth, rule - truth))
        checks.append(Check(f"{name}, {where}", error / size, 2 * allowed / size + ATOL))
    return tuple(checks)


def _problem(values: Values, device: Device) -> Problem:
    import torch

    from accel.attention.problem import Problem, default_scale

    heads, head_dim, seq = values.integer("heads"), values.integer("head_dim"), values.integer("seq")
    return Problem(
        batch=values.integer("batch"),
        heads=heads,
        kv_heads=values.integer("kv_heads") or heads,
        seq_q=seq,
        seq_k=seq,
        head_dim=head_dim,
        dtype=getattr(torch, values.text("dtype")),
        device=device.torch_device,
        capability=device.capability,
        causal=values.flag("causal"),
        scale=default_scale(head_dim),
        grad=False,
    )


def _bytes(p: Problem, backend: str) -> float:
    """Memory it takes at least: q, k, v and the output; `math` also holds all scores and their softmax."""
    rows = 2 * p.batch * (p.heads * p.seq_q + p.kv_heads * p.seq_k)
    scores = 2 * 4 * p.batch * p.heads * p.seq_q * p.seq_k if backend == "math" else 0
    return float(rows * p.head_dim * p.dtype.itemsize + scores)


def _sample(p: Problem) -> tuple[list[int], Tensor]:
    """Which heads (counted over the batch) and which rows to check: ends, block borders, and a random rest."""
    import torch

    every = p.batch * p.heads
    if every * p.seq_q * p.seq_k <= WHOLE_UP_TO:
        return list(range(every)), torch.arange(p.seq_q)
    heads = {0, every - 1, *torch.randint(every, (SAMPLED_HEADS - 2,)).tolist()}
    borders = torch.tensor([0, 1, 63, 64, 127, 128, p.seq_q // 2, p.seq_q - 1])
    rows = torch.cat([borders, torch.randint(p.seq_q, (SAMPLED_ROWS - len(borders),))])
    return sorted(heads), torch.tensor(sorted({row for row in rows.tolist() if row < p.seq_q}))


if __name__ == "__main__":
    sys.exit(main("attention", prepare))
