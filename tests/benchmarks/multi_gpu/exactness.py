"""Check answers over several GPUs against one GPU, and what a rank needs and survives."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.distributed import distributed_attention, explain, shard, spans_of
from tests.benchmarks.multi_gpu.cells import (
    DOCUMENTS,
    Cell,
    Steps,
    Table,
    drawn,
    on_gpu,
    say,
    shown,
)

FIELDS = (
    "check", "strategy", "exchange", "documents", "causal", "heads", "kv_heads", "head_dim",
    "tokens", "bit_equal", "lse_equal", "error", "error_dq", "error_dk", "error_dv", "repeats",
    "forward_ms", "both_ms", "peak_gib", "taken_gib", "bytes_gib", "gpus",
    "device", "versions", "commit", "date",
)  # fmt: skip
STRATEGIES = ("gather", "ulysses", "ring", "mesh", "hybrid")
TOKENS = 16000 if torch.cuda.is_available() else 512
EXACT = (
    Cell(16, 16, TOKENS),
    Cell(8, 2, TOKENS // 4 + 99, causal=False),
    Cell(32, 8, sum(DOCUMENTS), documents=DOCUMENTS),
)


def run_exactness(table: Table, steps: Steps) -> None:
    """Check each strategy, and that gradients computed again are the same."""
    for strategy in STRATEGIES:
        for cell in EXACT:
            if cell.documents and not on_gpu():
                continue
            with steps.step(f"{strategy} {cell}", 60) as go:
                if go:
                    _check(table, cell, strategy)


def _check(table: Table, cell: Cell, strategy: str) -> None:
    whole, ranks = drawn(cell), dist.get_world_size()
    mine = spans_of("zigzag", cell.tokens, ranks)[dist.get_rank()]
    q, k, v = (t.clone().requires_grad_() for t in whole[:3])
    ragged = Ragged.of(cell.documents, device=q.device) if cell.documents else None
    backend = "hopper" if on_gpu() else "auto"
    found: Any = attention(
        q, k, v, causal=cell.causal, backend=backend, seqlens=ragged, return_lse=True
    )
    one, lse = found
    wanted = torch.autograd.grad(one, (q, k, v), whole[3])
    given = [shard(t, mine, 2) for t in whole]
    options: dict[str, Any] = {
        "causal": cell.causal, "strategy": strategy, "backward_strategy": strategy,
        "seqlens": cell.documents or None, "tokens": cell.tokens, "backend": backend,
    }  # fmt: skip
    leaves = [t.clone().requires_grad_() for t in given[:3]]
    answers, grads = [], []
    for _ in range(6):  # also as a graph
        answer: Any = distributed_attention(*leaves, return_lse=True, **options)
        answers.append([t.detach() for t in answer])
        grads.append(torch.autograd.grad(answer[0], leaves, given[3]))
    last_out, last_lse = answers[-1]
    errors = [_error(g, shard(w, mine, 2)) for g, w in zip(grads[-1], wanted, strict=True)]
    row = {
        "check": "exactness", "strategy": strategy,
        "exchange": explain(*given[:3], **options)[0].exchange,
        "bit_equal": all(torch.equal(a[0], shard(one, mine, 2)) for a in answers),
        "lse_equal": torch.equal(last_lse, shard(lse, mine, 2)),
        "error": shown(_error(last_out, shard(one, mine, 2))),
        **{f"error_d{n}": shown(e) for n, e in zip("qkv", errors, strict=True)},
        "repeats": all(
            torch.equal(a, b) for g in grads for a, b in zip(g, grads[0], strict=True)
        ),
    }  # fmt: skip
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, row)
    worst = {
        **row,
        **{n: all(r[n] for r in every) for n in ("bit_equal", "lse_equal", "repeats")},
        **{n: max((r[n] for r in every), key=float) for n in row if n.startswith("error")},
    }
    table.add(**cell.columns, **worst)


def _error(got: Tensor, wanted: Tensor) -> float:
    got, wanted = got.detach(), wanted.detach()
    return float((got.float() - wanted.float()).norm() / wanted.float().norm().clamp(min=1e-30))


def run_memory(table: Table, steps: Steps) -> None:
    """Measure what a rank needs at its peak, and the time of one million tokens."""
    sizes = (262144, 1048576, 65536) if on_gpu() else (512,)
    for tokens in sizes:
        for strategy in ("gather", "ulysses")[: 1 if tokens == 1048576 else 2]:
            with steps.step(f"memory {tokens} {strategy}", 60) as go:
                if go:
                    _measure_memory(table, Cell(32, 8, tokens), strategy)


def _measure_memory(table: Table, cell: Cell, strategy: str) -> None:
    """Write the peak of both passes in GiB, beside the bytes of what the caller holds: q, k, v, the
    output, the gradient of it, and the gradients."""
    ranks = dist.get_world_size()
    part = Cell(cell.heads, cell.kv_heads, cell.tokens // ranks, cell.causal)
    given = drawn(part)
    leaves = [t.requires_grad_() for t in given[:3]]

    def divided() -> Tensor:
        out = distributed_attention(
            *leaves, causal=True, strategy=strategy, backward_strategy="ulysses"
        )
        assert isinstance(out, Tensor)
        return out

    if on_gpu():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        free = torch.cuda.mem_get_info()[0]
    begin = time.perf_counter()
    out = divided()
    if on_gpu():
        torch.cuda.synchronize()
    forward = time.perf_counter() - begin
    torch.autograd.grad(out, leaves, given[3])
    if on_gpu():
        torch.cuda.synchronize()
    whole = time.perf_counter() - begin
    held = sum(t.numel() * t.element_size() for t in (*given, out.detach(), *leaves))
    row: dict[str, object] = {
        "forward_ms": round(1e3 * forward), "both_ms": round(1e3 * whole),
        "bytes_gib": shown(held / 2**30),
    }  # fmt: skip
    if on_gpu():
        # what the driver gave: tensors, the arenas of both passes and the graphs
        row["peak_gib"] = shown(torch.cuda.max_memory_allocated() / 2**30)
        row["taken_gib"] = shown((free - torch.cuda.mem_get_info()[0]) / 2**30)
    table.add(check="memory", strategy=strategy, **cell.columns, **row)


def run_lost_peer(steps: Steps) -> None:
    """Let rank 1 end, and wait for the error of rank 0, which must come within 60 s."""
    cell = Cell(32, 8, TOKENS, causal=False)
    mine = spans_of("contiguous", cell.tokens, dist.get_world_size())[dist.get_rank()]
    q, k, v = (shard(t, mine, 2) for t in drawn(cell)[:3])
    options: dict[str, Any] = {"layout": "contiguous", "strategy": "gather", "backend": "flash"}
    with torch.no_grad():
        for _ in range(5):
            distributed_attention(q, k, v, **options)
        if on_gpu():
            torch.cuda.synchronize()
        dist.barrier()
    say("the peer ends now" if dist.get_rank() else "the peer is lost from here on")
    if dist.get_rank() == 1:
        os._exit(0)
    begin = time.monotonic()
    try:
        with torch.no_grad():
            for _ in range(3):
                distributed_attention(q, k, v, **options)
        if on_gpu():
            torch.cuda.synchronize()
    except RuntimeError as e:
        say(f"an error after {time.monotonic() - begin:.1f} s: {str(e)[:200]}")
        os._exit(0)
    say(f"no error after {time.monotonic() - begin:.1f} s")
    os._exit(1)
