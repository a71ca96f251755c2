"""Attention over two GPUs: from one program, beside FSDP2, and with gradients that repeat. Run on a
machine with two:

python -m pytest tests/gpu/test_several_gpus.py -n 0
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from gpudeck.accel.attention import attention
from gpudeck.accel.distributed import RingAttention, distributed_attention, shard, spans_of

if torch.cuda.device_count() < 2:
    pytest.skip("needs two CUDA GPUs", allow_module_level=True)

TOKENS, HEADS, KV_HEADS, DIM = 4096, 8, 2, 64


def whole() -> list[Tensor]:
    """Return q, k, v and the gradient of the output."""
    draw = torch.Generator("cuda").manual_seed(1)
    return [
        torch.randn(1, h, TOKENS, DIM, device="cuda", dtype=torch.bfloat16, generator=draw)
        for h in (HEADS, KV_HEADS, KV_HEADS, HEADS)
    ]


def assert_near(got: Tensor, wanted: Tensor) -> None:
    error = (got.float() - wanted.float()).norm() / wanted.float().norm()
    assert error < 1e-2, f"wrong by {float(error):.3g}"


def test_one_program_computes_on_two_gpus():
    q, k, v, dout = whole()
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = RingAttention(num_gpus=2, causal=True)(*leaves)
    one = attention(*leaves, causal=True)
    assert_near(out, one)
    grads = (torch.autograd.grad(o, leaves, dout) for o in (out, one))
    for got, wanted in zip(*grads, strict=True):
        assert_near(got, wanted)


class Layer(nn.Module):
    """One layer of attention; `mesh` divides the sequence."""

    def __init__(self, mesh: DeviceMesh | None) -> None:
        super().__init__()
        torch.manual_seed(1)
        width = HEADS * DIM
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mesh = mesh
        self.to("cuda", torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.mesh is None:
            found = attention(q, k, v, causal=True)
        else:
            found = distributed_attention(q, k, v, group=self.mesh, causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


def fsdp_beside_a_divided_sequence(rank: int) -> None:
    mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("dp", "cp"))
    one, layer = Layer(None), Layer(mesh["cp"])
    fully_shard(layer, mesh=mesh["dp", "cp"]._flatten("all"))
    draw = torch.Generator("cuda").manual_seed(2)
    x = torch.randn(2, TOKENS, HEADS * DIM, device="cuda", dtype=torch.bfloat16, generator=draw)
    one(x).float().square().mean().backward()
    mine = spans_of("zigzag", TOKENS, 2)[rank]
    layer(shard(x, mine)).float().square().mean().backward()
    for got, wanted in zip(layer.parameters(), one.parameters(), strict=True):
        assert_near(got.grad.full_tensor(), wanted.grad)


def gradients_repeat(rank: int) -> None:
    mine = spans_of("zigzag", TOKENS, 2)[rank]
    q, k, v, dout = (shard(t, mine, 2) for t in whole())
    leaves = [t.requires_grad_() for t in (q, k, v)]
    for strategy in ("gather", "ulysses"):
        found = []
        for _ in range(6):  # the later ones as a CUDA graph
            out = distributed_attention(
                *leaves, causal=True, deterministic=True, strategy=strategy,
                backward_strategy=strategy,
            )  # fmt: skip
            found.append(torch.autograd.grad(out, leaves, dout))
        for again in found[1:]:
            assert all(map(torch.equal, again, found[0])), strategy


def process(rank: int, folder: str, work: Callable[[int], None]) -> None:
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    work(rank)
    dist.barrier()
    os._exit(0)


@pytest.mark.parametrize("work", [gradients_repeat, fsdp_beside_a_divided_sequence])
def test_two_processes(work, tmp_path):
    torch.multiprocessing.spawn(process, (str(tmp_path), work), nprocs=2)
