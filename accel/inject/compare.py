"""Compare a program before and after its attention was linked, by running both.

The measure is a run of the original in float64. The errors of the linked program must not exceed
twice those of the original plus the rounding of its precision, for outputs and gradients.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.inject import record
from gpudeck.accel.inject.prove import Trial
from gpudeck.accel.inject.scores import Scores

Run = Callable[[dict[str, Any]], Any]
ROUNDING = {torch.float32: 5e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def trial(
    before: Run, after: Run, exact: Run, inputs: dict[str, Any], dtype: torch.dtype, words: str,
    ends: Collection[int], device: str = "cpu",
) -> Trial:  # fmt: skip
    """Compare one set of inputs in one precision.

    Args:
        exact: computes in float64.
        words: describes the inputs.
        ends: the lines of the linked program on which its attention may end.

    Raises what the original raises.
    """
    reference, _, _ = _results(exact, _cast(inputs, torch.float64, device), runs=1)
    given = _cast(inputs, dtype, device)
    old, ms_before, kept_before = _results(before, given)
    record.clear()
    new, ms_after, kept_after = _results(after, given)
    rows, shape = record.report(), record.find_largest(ends)
    ran = tuple(sorted({str(row["what"]) for row in rows}))
    largest = max([_norm(want) for want in reference], default=0.0)
    errors = [_error(mine, want, largest) for mine, want in zip(old, reference, strict=True)]
    ours = [_error(mine, want, largest) for mine, want in zip(new, reference, strict=True)]
    same = [_kind(a) == _kind(b) for a, b in zip(old, new, strict=True)]
    bound = ROUNDING[dtype]
    passed = all(same) and all(o <= 2 * e + bound for o, e in zip(ours, errors, strict=True))
    most, our_most = (_finite(max(e, default=0.0)) for e in (errors, ours))
    return Trial(
        words, str(dtype).removeprefix("torch."), shape is not None, most, our_most, passed, ran,
        ms_before, ms_after, kept_before, kept_after, shape,
    )  # fmt: skip


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 1e30


RUNS_ON_GPU, RUNS_ON_CPU = 6, 4
"""How often code runs. The first run prepares or compiles kernels, and the fastest one counts."""


def _results(
    run: Run, inputs: dict[str, Any], runs: int | None = None
) -> tuple[list[Tensor | None], float, int]:
    """Return outputs and gradients, milliseconds, and the bytes kept for the backward pass."""
    if runs is None:
        on_gpu = any(isinstance(t, Tensor) and t.is_cuda for t in inputs.values())
        runs = RUNS_ON_GPU if on_gpu else RUNS_ON_CPU
    made = [_run(run, inputs) for _ in range(runs)]
    results, _, kept = made[-1]
    return results, min(ms for _, ms, _ in made), kept


def _run(run: Run, inputs: dict[str, Any]) -> tuple[list[Tensor | None], float, int]:
    given = copy.deepcopy(inputs)
    leaves = [t for t in given.values() if isinstance(t, Tensor) and t.is_floating_point()]
    for t in leaves:
        t.requires_grad_()
    kept: dict[int, int] = {}

    def keep(t: Tensor) -> Tensor:
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    torch.manual_seed(0)
    _wait()
    start = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        # a step between leaves and the program, as programs change their inputs in place
        outs = _tensors(
            run({n: t * 1 if any(t is x for x in leaves) else t for n, t in given.items()})
        )
    grads: Sequence[Tensor | None] = []
    wanted = [*leaves, *getattr(run, "parameters", list)()]
    differentiable = [o for o in outs if o.requires_grad]
    if differentiable and wanted:
        weights = [
            torch.linspace(-1, 1, o.numel(), dtype=o.dtype, device=o.device).view(o.shape)
            for o in differentiable
        ]
        finite = [o.nan_to_num(0.0) for o in differentiable]
        loss = sum((o * w).sum() for o, w in zip(finite, weights, strict=True))
        grads = torch.autograd.grad(loss, wanted, allow_unused=True)  # type: ignore[arg-type]
    _wait()
    ms = (time.perf_counter() - start) * 1e3
    return [*(o.detach() for o in outs), *grads], ms, sum(kept.values())


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Scores):
        value = value.tensor()
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, (tuple, list)) else []


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _cast(value: Any, dtype: torch.dtype, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    if isinstance(value, dict):
        return {name: _cast(v, dtype, device) for name, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_cast(v, dtype, device) for v in value)
    return value


NEGLIGIBLE = 1e-2
"""The share of the largest output or gradient below which another one counts as rounding."""


def _kind(t: Tensor | None) -> tuple[object, ...]:
    return () if t is None else (t.shape, t.dtype)


def _norm(t: Tensor | None) -> float:
    return 0.0 if t is None else float(t[t.isfinite()].norm())


def _error(mine: Tensor | None, want: Tensor | None, largest: float) -> float:
    """Return the relative error where the reference is finite.

    A gradient that is 0 but for rounding, like that of a bias of keys, is measured by the largest.
    """
    if mine is None or want is None:
        return 0.0 if mine is want else math.inf
    mine, known = mine.double(), want.isfinite()
    if not bool(mine[known].isfinite().all()):
        return math.inf
    distance = float((mine - want)[known].norm())
    return distance / max(_norm(want), NEGLIGIBLE * largest, 1e-12)
