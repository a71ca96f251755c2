"""Products of experts: rows that lie end to end, each part with a right operand of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.api import Scales, gemm
from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.operands import Operands, arrange, boxes
from gpudeck.accel.runtime.given import require_tensors
from gpudeck.accel.runtime.named import launch
from gpudeck.accel.runtime.refusals import CannotCompute, check_name
from gpudeck.language.text import phrase

GROUPED = ("hopper", "loop")
_LINES = 32
"""Lines of the table of tiles that a program writes."""


def grouped_gemm(
    a: Tensor,
    b: Tensor,
    starts: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scales: Scales | None = None,
    backend: str = "auto",
) -> Tensor:
    """Multiply the rows of each expert with its matrix.

    Args:
        a: [rows, k], the rows of all experts end to end.
        b: [experts, k, n].
        starts: int tensor [experts + 1] on the device of a: expert e has the rows from starts[e] to
            starts[e + 1]. Any of them may have none. They rise from 0 to rows: `loop` checks it;
            `hopper`, which does not wait for the GPU, leaves rows of no expert undefined.
        out_dtype: as for `gemm`.
        scales: for FP8, as for `gemm`; those of b have one more dimension, for the experts.
        backend: `hopper`, one kernel that reads `starts` on the GPU, without gradients; `loop`, a
            product for each expert, which reads them on the host; or `auto`: the kernel where it
            can.

    Returns:
        [rows, n]. Gradients flow to a and b.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
    """
    require_tensors(a=a, b=b, starts=starts)
    if a.dim() != 2 or b.dim() != 3 or starts.shape != (b.shape[0] + 1,):
        raise ValueError(
            "grouped_gemm takes a [rows, k], b [experts, k, n] and starts [experts + 1]; got"
            f" {list(a.shape)}, {list(b.shape)} and {list(starts.shape)}"
        )
    check_name(backend, GROUPED)
    first = None if scales is None else (scales[0], scales[1][0])
    x = arrange(a, b[0], None, None, out_dtype, first, None)
    x = replace(
        x, b=b, scale_b=None if scales is None else scales[1].float(),
        problem=replace(x.problem, boxes=x.problem.boxes and boxes(b)),
    )  # fmt: skip
    why = BACKENDS["hopper"].refusal(x.problem)
    if why is None and torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
        why = phrase("computes no gradients")
    if backend == "hopper" and why is not None:
        raise CannotCompute("hopper", why, ("loop",))
    if why is None and backend != "loop":
        return _one_kernel(x, starts)
    return _loop(x, starts)


def row_tiles(starts: Tensor, rows: int, tile: int) -> Tensor:
    """Return the table of rows of tiles: int32 [3 lines + 1].

    A line is (expert, first row, end of its rows). The tiles of an expert follow each other, so
    that its weights are read once. The table is computed on the device, without reading `starts` on
    the host, so that it has the most lines that may be needed; its last number is how many are
    used.
    """
    experts = len(starts) - 1
    lines = -(-rows // tile) + experts
    if starts.device.type == "cuda":  # one launch instead of a dozen
        return _table(starts, lines, tile)
    starts = starts.long()
    counts = -(-starts.diff() // tile)
    experts_of = torch.arange(experts, device=starts.device).repeat_interleave(counts)
    before = (counts.cumsum(0) - counts)[experts_of]
    first = starts[experts_of] + tile * (torch.arange(len(before), device=starts.device) - before)
    used = torch.stack((experts_of, first, starts[experts_of + 1])).t().flatten()
    table = torch.zeros(3 * lines + 1, dtype=torch.int32, device=starts.device)
    table[: len(used)], table[-1] = used, len(experts_of)
    return table


def _table(starts: Tensor, lines: int, tile: int) -> Tensor:
    from gpudeck.accel.primitives.gemm.grouped_kernels import rows_of_tiles

    experts = len(starts) - 1
    table = torch.empty(3 * lines + 1, dtype=torch.int32, device=starts.device)
    tensors: dict[str, Tensor | None] = {"starts_ptr": starts.contiguous(), "table_ptr": table}
    power = max(2, 1 << (experts - 1).bit_length())
    constants = {"TILE": tile, "EXPERTS": power, "BLOCK": _LINES}
    numbers = {"experts": experts, "lines": lines}
    launch(
        rows_of_tiles, (-(-lines // _LINES), 1, 1), tensors, numbers, constants
    )  # fmt: skip
    return table


def _one_kernel(x: Operands, starts: Tensor) -> Tensor:
    from gpudeck.accel.primitives.gemm import hopper

    shape = hopper.shape_of(x.problem, len(starts) - 1)
    table = row_tiles(starts, x.problem.m, shape.consumers * hopper.ROWS)
    out = x.a.new_empty(1, x.problem.m, x.problem.n, dtype=x.problem.out_dtype)
    hopper.run(x, out, shape, table, len(table) // 3)
    return out[0]


def _loop(x: Operands, starts: Tensor) -> Tensor:
    bounds = starts.tolist()
    if bounds[0] != 0 or bounds[-1] != x.problem.m or bounds != sorted(bounds):
        raise ValueError(
            f"starts must rise from 0 to the number of rows, {x.problem.m}; got {bounds[:8]}"
        )
    out = x.a.new_empty(x.problem.m, x.problem.n, dtype=x.problem.out_dtype)
    for e, (begin, end) in enumerate(pairwise(bounds)):
        scales = None
        if x.scale_a is not None and x.scale_b is not None:
            shared = len(x.scale_a) != x.problem.m
            scales = (x.scale_a if shared else x.scale_a[begin:end], x.scale_b[e])
        if end > begin:
            rows = x.a[0, begin:end]
            out[begin:end] = gemm(rows, x.b[e], out_dtype=x.problem.out_dtype, scales=scales)
    return out
