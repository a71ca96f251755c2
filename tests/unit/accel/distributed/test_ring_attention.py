"""The names of Ring Attention, with and without torchrun."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import results

from gpudeck.accel.distributed import (
    RingAttention,
    distributed_attention,
    global_accumulate,
    local_attention,
    ring_attention_backward,
    ring_attention_forward,
    ring_send_recv,
    shard_sequence,
    spans_of,
    unshard,
)


def whole(heads: int = 4, tokens: int = 30) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(1, heads, tokens, 8, generator=draw) for _ in range(4)]


def by_hand() -> list[torch.Tensor]:
    """Compute Ring Attention from its parts, as a reader of the paper would write it."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    q, k, v, dout = (shard_sequence(t, ranks, rank, layout="contiguous") for t in whole())
    parts = []
    keys, values = k, v
    for step in range(ranks):
        source = (rank - step) % ranks
        if source <= rank:
            parts.append(local_attention(q, keys, values, causal=source == rank))
        keys, values = ring_send_recv(keys, values)
    out, lse = global_accumulate(parts)
    options = {"causal": True, "layout": "contiguous"}
    again, again_lse = ring_attention_forward(q, k, v, **options)
    torch.testing.assert_close(again, out)
    torch.testing.assert_close(again_lse, lse)
    module = RingAttention(num_gpus=ranks, **options)
    torch.testing.assert_close(module(q, k, v), out)
    return [out, *ring_attention_backward(dout, q, k, v, out, lse, **options)]


@pytest.mark.slow
def test_the_parts_of_ring_attention_make_the_whole():
    q, k, v, dout = whole()
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    wanted = [out.detach(), *torch.autograd.grad(out, leaves, dout)]
    found = results(3, by_hand)
    spans = spans_of("contiguous", 30, 3)
    for i, expected in enumerate(wanted):
        torch.testing.assert_close(unshard([f[i] for f in found], spans, 2), expected)


@pytest.mark.slow
def test_one_script_gets_the_whole_answer_and_gradients_from_its_own_processes():
    q, k, v, dout = whole(tokens=29)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    attend = RingAttention(num_gpus=2, causal=True)
    out = attend(*leaves)
    found = torch.autograd.grad(out, leaves, dout)
    wanted = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(found, torch.autograd.grad(wanted, leaves, dout))
    with pytest.raises(RuntimeError, match="strategy is one of"):
        attend(q, k, v, strategy="magic")


def test_without_a_group_the_error_says_what_to_do():
    q, k, v, _ = whole()
    with pytest.raises(RuntimeError, match="torchrun"):
        distributed_attention(q, k, v)
    with pytest.raises(ValueError, match="at least one"):
        global_accumulate([])
