"""Measure attention over the GPUs of this machine, beside the ideal: heads divided, nothing moved.

Run `torchrun --nproc-per-node 2 -m tests.benchmarks.distributed [--tokens 16384,65536]`. Rank 0
prints a row for each cell and writes results/distributed_runs.csv. NVLink multicast stays off.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.distributed import distributed_attention, shard, spans_of
from tests.benchmarks import rows

HEADS = ((32, 8), (16, 16))
STRATEGIES = ("gather", "ulysses")
DIM = 128


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """Return the time of a call on the slowest rank: the median of three series."""
    for _ in range(3):
        call()
    series = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        torch.cuda.synchronize()
        series.append(begin.elapsed_time(end) / repeats)
    slowest = torch.tensor(sorted(series)[1], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)


def both(attend: Callable[..., Tensor], given: list[Tensor]) -> Callable[[], object]:
    """Return a call of the forward and backward pass."""
    leaves = [t.detach().clone().requires_grad_() for t in given[:3]]
    return lambda: torch.autograd.grad(attend(*leaves), leaves, given[3])


def drawn(heads: int, kv_heads: int, tokens: int) -> list[Tensor]:
    shapes = [(heads, tokens), (kv_heads, tokens), (kv_heads, tokens), (heads, tokens)]
    draw = torch.Generator("cuda").manual_seed(tokens)
    return [
        torch.randn(1, h, n, DIM, device="cuda", dtype=torch.bfloat16, generator=draw)
        for h, n in shapes
    ]


def cell(heads: int, kv_heads: int, tokens: int, causal: bool) -> list[dict[str, object]]:
    """Return the rows of one problem, after a check that the answer is one GPU's."""
    ranks, repeats = dist.get_world_size(), max(1, 20 * 16384 // tokens)
    part = drawn(heads // ranks, max(1, kv_heads // ranks), tokens)

    def one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, causal=causal)

    with torch.no_grad():
        ideal = milliseconds(lambda: one(*part[:3]), repeats)
    ideal_both = milliseconds(both(one, part), repeats)
    whole = drawn(heads, kv_heads, tokens)
    mine = spans_of("zigzag", tokens, ranks)[dist.get_rank()]
    given = [shard(t, mine, 2) for t in whole]
    found = []
    for strategy in STRATEGIES:

        def divided(q: Tensor, k: Tensor, v: Tensor, strategy: str = strategy) -> Tensor:
            out = distributed_attention(
                q, k, v, causal=causal, strategy=strategy, backward_strategy="ulysses"
            )
            assert isinstance(out, Tensor)
            return out

        with torch.no_grad():
            same = torch.equal(
                divided(*given[:3]),
                shard(attention(*whole[:3], causal=causal, backend="hopper"), mine, 2),
            )
            forward = milliseconds(lambda d=divided: d(*given[:3]), repeats)
        whole_step = milliseconds(both(divided, given), repeats)
        found.append({
            "heads": heads, "kv_heads": kv_heads, "tokens": tokens, "causal": causal,
            "strategy": strategy, "ranks": ranks, "bit_equal": same, "forward_ms": forward,
            "forward_share": round(ideal / forward, 3), "both_ms": whole_step,
            "both_share": round(ideal_both / whole_step, 3),
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", default="8192,16384,65536,262144")
    asked = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    table = []
    for tokens in map(int, asked.tokens.split(",")):
        for heads, kv_heads in HEADS:
            for causal in (True, False):
                table += cell(heads, kv_heads, tokens, causal)
                if dist.get_rank() == 0:
                    for row in table[-len(STRATEGIES) :]:
                        print(row, flush=True)
    if dist.get_rank() == 0:
        where = rows.context(torch.cuda.get_device_name(), ("torch", "triton"))
        rows.write("distributed_runs.csv", [{**where, **row} for row in table])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
