"""Attention in torch's local_tensor mode: one process plays all ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from gpudeck.accel.attention import attention
from gpudeck.accel.distributed import distributed_attention, shard, spans_of, unshard
from gpudeck.accel.distributed.frameworks.local_tensor import register

RANKS, TOKENS = 4, 37


@pytest.fixture(autouse=True)
def played_ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=RANKS)
    register()
    yield
    dist.destroy_process_group()


def drawn(heads: int, seed: int) -> Tensor:
    return torch.randn(1, heads, TOKENS, 8, generator=torch.Generator().manual_seed(seed))


def whole(t: LocalTensor, spans, ranks) -> Tensor:
    return unshard([t._local_tensors[rank] for rank in ranks], spans, 2)


def test_all_ranks_get_their_rows_and_gradients():
    leaves = [drawn(h, i).requires_grad_() for i, h in enumerate((4, 2, 2))]
    sink, dout = torch.randn(4, requires_grad=True), drawn(4, 3)
    spans = spans_of("zigzag", TOKENS, RANKS)
    one = attention(*leaves, causal=True, sink=sink)
    wanted = torch.autograd.grad(one, [*leaves, sink], dout)
    with LocalTensorMode(RANKS) as mode:
        x = [
            mode.rank_map(lambda r, t=t: shard(t.detach(), spans[r], 2)).requires_grad_()
            for t in leaves
        ]
        own = mode.rank_map(lambda r: sink.detach().clone()).requires_grad_()
        out = distributed_attention(*x, causal=True, tokens=TOKENS, sink=own)
        found = torch.autograd.grad(
            out, [*x, own], mode.rank_map(lambda r: shard(dout, spans[r], 2))
        )
    torch.testing.assert_close(whole(out, spans, range(RANKS)), one)
    for got, want in zip(found[:3], wanted, strict=False):
        torch.testing.assert_close(whole(got, spans, range(RANKS)), want)
    torch.testing.assert_close(sum(found[3]._local_tensors.values()), wanted[3])


def test_each_group_of_a_mesh_computes_its_own_sequence():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    batches = [[drawn(2, 10 * row + i) for i in range(3)] for row in range(2)]
    spans = spans_of("zigzag", TOKENS, 2)
    with LocalTensorMode(RANKS) as mode:
        x = [
            mode.rank_map(lambda r, i=i: shard(batches[r // 2][i], spans[r % 2], 2))
            for i in range(3)
        ]
        out = distributed_attention(*x, group=mesh["cp"], causal=True, tokens=TOKENS)
    for row in range(2):
        wanted = attention(*batches[row], causal=True)
        torch.testing.assert_close(whole(out, spans, (2 * row, 2 * row + 1)), wanted)


def test_a_shard_of_another_length_is_an_error():
    with LocalTensorMode(RANKS) as mode:
        x = [mode.rank_map(lambda r: torch.zeros(1, 1, 5 + r, 8)) for _ in range(3)]
        with pytest.raises(
            ValueError, match="rank 0 holds 9 of 37 tokens by this layout, and got 5"
        ):
            distributed_attention(*x, tokens=TOKENS)
