"""Attention over several ranks in other people's code: FSDP2, torch.compile, transformers, and
torch's context parallelism."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from ranks import results
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from gpudeck.accel.distributed import distributed_attention, positions, shard, spans_of, unshard
from gpudeck.accel.distributed.frameworks.torch import context_parallel, context_parallel_unshard
from gpudeck.accel.distributed.frameworks.transformers import NAME, register

TOKENS, WIDTH, HEADS = 24, 16, 2


class Layer(nn.Module):
    """One layer of attention; `mesh` divides the sequence."""

    def __init__(self, mesh=None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mesh = mesh

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        if self.mesh is None:
            found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            found = distributed_attention(q, k, v, group=self.mesh, causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


def batch() -> Tensor:
    return torch.randn(4, TOKENS, WIDTH, generator=torch.Generator().manual_seed(2))


def trained_by_fsdp() -> list[Tensor]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "cp"))
    layer = Layer(mesh["cp"])
    fully_shard(layer, mesh=mesh["dp", "cp"]._flatten("all"))
    rows = batch().chunk(2)[mesh["dp"].get_local_rank()]
    mine = spans_of("zigzag", TOKENS, 2)[mesh["cp"].get_local_rank()]
    layer(shard(rows, mine)).square().mean().backward()  # FSDP takes the mean over all ranks
    return [p.grad.full_tensor() for p in layer.parameters()]


@pytest.mark.slow
def test_fsdp_beside_a_divided_sequence_has_the_gradients_of_one_device():
    layer = Layer()
    layer(batch()).square().mean().backward()
    for found in results(4, trained_by_fsdp):
        for got, p in zip(found, layer.parameters(), strict=True):
            torch.testing.assert_close(got, p.grad)


def compiled() -> list[Tensor]:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return distributed_attention(q * 2, k, v, causal=True, strategy="gather").sin()

    mine = spans_of("zigzag", TOKENS, 2)[dist.get_rank()]
    x = [shard(t, mine, 2).requires_grad_() for t in whole()]
    out = torch.compile(attend, fullgraph=True, backend="aot_eager")(*x)
    again = attend(*x)
    torch.testing.assert_close(out, again)
    for a, b in zip(
        torch.autograd.grad(out.sum(), x), torch.autograd.grad(again.sum(), x), strict=True
    ):
        torch.testing.assert_close(a, b)
    return [out.detach()]


def whole() -> list[Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(1, HEADS, TOKENS, 8, generator=draw) for _ in range(3)]


@pytest.mark.slow
def test_torch_compile_sees_one_operation():
    results(2, compiled)


def llama(implementation: str) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, attn_implementation=implementation,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def logits_of_a_shard(tokens: int) -> Tensor:
    register(tokens=tokens)
    mine = spans_of("zigzag", tokens, 2)[dist.get_rank()]
    ids = torch.arange(tokens)[None] * 7 % 50
    model = llama(NAME)
    out = model(shard(ids, mine), position_ids=positions(mine)[None], use_cache=False)
    return out.logits.detach()


@pytest.mark.slow
def test_a_model_of_transformers_computes_its_shard():
    pytest.importorskip("transformers")
    tokens = 21
    ids = torch.arange(tokens)[None] * 7 % 50
    expected = llama("sdpa")(ids).logits
    found = results(2, logits_of_a_shard, tokens)
    got = unshard(found, spans_of("zigzag", tokens, 2))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def by_torch_s_calls(tokens: int) -> list[Tensor]:
    """Compute attention as a program for torch's context parallelism does it."""
    mesh = init_device_mesh("cpu", (2,))
    q, k, v = (t[:, :, :tokens].clone() for t in whole())
    ids = torch.arange(tokens)
    with context_parallel(
        mesh, buffers=[q, k, v, ids], buffer_seq_dims=[2, 2, 2, 0], no_restore_buffers={ids}
    ):
        leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
        out = nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        with pytest.raises(ValueError, match="no mask"):
            nn.functional.scaled_dot_product_attention(*leaves, attn_mask=torch.ones(1, 1))
        grads = torch.autograd.grad(out.sum(), leaves)
        found = context_parallel_unshard(mesh, [out.detach(), *grads], [2] * 4)
    assert q.shape[2] == tokens > ids.shape[0]
    [every] = context_parallel_unshard(mesh, [ids], [0])
    assert every.tolist() == list(range(tokens))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [24, 21])
def test_programs_for_torch_s_context_parallelism_need_only_another_import(tokens):
    leaves = [t[:, :, :tokens].requires_grad_() for t in whole()]
    out = nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
    expected = [out, *torch.autograd.grad(out.sum(), leaves)]
    for found in results(2, by_torch_s_calls, tokens):
        for got, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
