"""Models that are trained on several processes compute the same with our attention."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel

from gpudeck.accel.attention import attention

RANKS = 2


class Block(nn.Module):
    def __init__(self, attend):
        super().__init__()
        self.qkv, self.out, self.attend = nn.Linear(16, 48), nn.Linear(16, 16), attend

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


def ours(q, k, v):
    return attention(q, k, v, causal=True)


def theirs(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def trained(kind, attend, rank, compiled):
    """Return the losses of three steps, and the weights after them."""
    torch.manual_seed(0)
    net = nn.Sequential(Block(attend), Block(attend))
    if kind == "DDP":
        model = DistributedDataParallel(net)
    else:
        for block in net:
            fully_shard(block)
        model = fully_shard(net)
    if compiled:
        model.compile(backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(RANKS, 2, 6, 16, generator=torch.Generator().manual_seed(1))[rank]
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return losses, [p.detach() for p in full]


def process(rank, folder, kind, compiled):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS
    )
    mine, expected = (trained(kind, attend, rank, compiled) for attend in (ours, theirs))
    torch.testing.assert_close(mine, expected)
    dist.barrier()
    os._exit(0)  # as torch's own threads, which end later on a busy machine, abort a usual exit


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_two_processes_train_as_with_torch_s_attention(kind, compiled, tmp_path):
    torch.multiprocessing.spawn(process, (str(tmp_path), kind, compiled), nprocs=RANKS)
