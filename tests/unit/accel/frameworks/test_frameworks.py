"""The doors for other programs: PyTorch's registry, flash-attn's functions, Hugging Face's
interface, FlashAttention-3 by name."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from gpudeck import accel
from gpudeck.accel.attention import attention
from gpudeck.accel.attention.frameworks.sdpa import is_installed, sdpa_backward, sdpa_forward
from gpudeck.accel.attention.frameworks.transformers import attention_forward


def random(*shape, grad=True):
    return torch.randn(*shape, requires_grad=grad)


@pytest.mark.parametrize("causal", [False, True])
def test_the_kernels_registered_with_pytorch_keep_its_contract(causal):
    """Called as PyTorch calls them; on CUDA they are reached through scaled_dot_product_attention
    (tests/gpu)."""
    q, k, v = random(2, 4, 6, 8), random(2, 2, 6, 8), random(2, 2, 6, 8)
    out, lse, *rest = sdpa_forward(q, k, v, 0.0, causal, False, scale=0.3)
    exact = scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(out, exact)
    assert lse.shape == (2, 4, 6) and rest[:4] == [None, None, 6, 6]
    assert out.stride() == q.stride()
    dout = torch.randn(out.shape)
    grads = sdpa_backward(
        dout, q, k, v, out, lse, None, None, 6, 6, 0.0, causal, rest[4], rest[5], scale=0.3
    )
    for ours, theirs in zip(grads, torch.autograd.grad(exact, (q, k, v), dout), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_install_puts_ours_into_the_registry_and_uninstall_takes_it_out():
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()
    accel.uninstall()  # nothing to take out is no error
    q, k, v = (random(1, 2, 5, 8) for _ in range(3))
    before = scaled_dot_product_attention(q, k, v)
    accel.install()
    accel.install()
    assert is_installed() and not torch.backends.cuda.cudnn_sdp_enabled()
    torch.testing.assert_close(scaled_dot_product_attention(q, k, v), before)
    accel.uninstall()
    assert not is_installed() and torch.backends.cuda.cudnn_sdp_enabled() == cudnn


def test_flash_attn_func_takes_rows_first_and_minus_one_for_no_limit():
    q, k, v = random(2, 7, 4, 8), random(2, 9, 2, 8), random(2, 9, 2, 8)
    out, lse, probabilities = accel.flash_attn_func(
        q, k, v, causal=True, window_size=(3, -1), softcap=2.0, return_attn_probs=True
    )
    exact, exact_lse = attention(
        q, k, v, causal=True, window=(3, None), softcap=2.0, layout="bshd", return_lse=True
    )
    assert torch.equal(out, exact) and torch.equal(lse, exact_lse) and probabilities is None
    torch.testing.assert_close(
        accel.flash_attn_func(q, k, v),
        attention(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2),
    )


def test_flash_attn_varlen_func_is_each_sequence_alone():
    q, k = random(7, 4, 8), random(9, 2, 8)
    starts_q, starts_k = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3, 7], [0, 5, 9]))
    out = accel.flash_attn_varlen_func(q, k, k, starts_q, starts_k, 4, 5, causal=True)
    for a, b in ((slice(0, 3), slice(0, 5)), (slice(3, 7), slice(5, 9))):
        alone = accel.flash_attn_func(q[None, a], k[None, b], k[None, b], causal=True)[0]
        torch.testing.assert_close(out[a], alone)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dropout_p": 0.1}, r"attention here has no dropout; got dropout_p=0.1"),
        (
            {"alibi_slopes": torch.ones(4)},
            r"takes alibi_slopes only with causal=True, .* give the bias",
        ),
    ],
)
def test_what_flash_attn_offers_and_we_do_not_is_refused(asked, message):
    q = random(1, 3, 4, 8)
    with pytest.raises(ValueError, match=message):
        accel.flash_attn_func(q, q, q, **asked)


class Decoder(torch.nn.Module):
    is_causal = True


def test_the_hugging_face_door_agrees_with_sdpa():
    q, k, v = random(2, 4, 5, 8), random(2, 2, 5, 8), random(2, 2, 5, 8)
    out, weights = attention_forward(Decoder(), q, k, v, None, scaling=0.4)
    exact = scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.4, enable_gqa=True
    ).transpose(1, 2)
    torch.testing.assert_close(out, exact)
    assert weights is None and out.is_contiguous()
    mask = torch.rand(2, 1, 5, 5) > 0.3
    mask[..., 0] = True
    for given in (mask, torch.zeros(2, 1, 5, 5).masked_fill(~mask, torch.finfo(torch.float32).min)):
        out, _ = attention_forward(Decoder(), q, k, v, given)
        exact = scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(
            1, 2
        )
        torch.testing.assert_close(out, exact)


def test_empty_places_of_a_cache_are_not_seen_while_a_single_query_sees_all():
    q, k, v = random(1, 2, 3, 8), random(1, 2, 9, 8), random(1, 2, 9, 8)
    out, _ = attention_forward(Decoder(), q, k, v, None)
    torch.testing.assert_close(
        out, attention(q, k[:, :, :3], v[:, :, :3], causal=True).transpose(1, 2)
    )
    out, _ = attention_forward(Decoder(), q[:, :, :1], k, v, None)
    torch.testing.assert_close(out, attention(q[:, :, :1], k, v).transpose(1, 2))


def test_more_queries_than_keys_stand_as_in_sdpa_and_odd_masks_are_refused():
    q, k, v = random(1, 2, 7, 8), random(1, 2, 4, 8), random(1, 2, 4, 8)
    out, _ = attention_forward(Decoder(), q, k, v, None)
    torch.testing.assert_close(
        out, scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    )
    with pytest.raises(
        ValueError,
        match=(
            r"attention_mask must be bool or of a floating-point dtype, which is added; got"
            r" torch\.int64"
        ),
    ):
        attention_forward(Decoder(), q, k, v, torch.ones(1, 1, 7, 4, dtype=torch.int64))


def test_slopes_of_flash_attn_are_alibi():
    q = random(1, 6, 4, 8)
    slopes = torch.rand(4)
    out = accel.flash_attn_func(q, q, q, causal=True, alibi_slopes=slopes)
    x = q.transpose(1, 2)
    places = torch.arange(6) - torch.arange(6)[:, None]
    due = attention(x, x, x, causal=True, bias=slopes[:, None, None] * places)
    torch.testing.assert_close(out, due.transpose(1, 2))


def test_dropout_is_refused_by_name():
    q = random(1, 2, 3, 8)
    with pytest.raises(
        ValueError,
        match=r"implementation gpudeck offers no dropout; load the model with another",
    ):
        attention_forward(Decoder(), q, q, q, None, dropout=0.1, s_aux=torch.ones(2))


@pytest.mark.parametrize("kv_heads", [2, 4])
def test_the_passes_by_themselves_are_the_recorded_operation(kv_heads):
    q, k, v = random(2, 4, 4, 8), random(2, kv_heads, 4, 8), random(2, kv_heads, 4, 8)
    rules = {"causal": True, "backend": "math"}
    out, lse = accel.flash_attention_3_forward(q, k, v, **rules)
    whole = attention(q, k, v, **rules)
    assert torch.equal(out, whole) and not out.requires_grad
    dout = torch.randn(out.shape)
    grads = accel.flash_attention_3_backward(dout, q, k, v, out, lse, **rules)
    for ours, theirs in zip(grads, torch.autograd.grad(whole, (q, k, v), dout), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_backward_pass_by_itself_checks_what_it_is_given():
    q = random(1, 2, 5, 8, grad=False)
    out, lse = accel.flash_attention_3_forward(q, q, q, backend="math")
    for wrong, message in (
        (
            (out[:, :1], out, lse),
            r"dout must be float32 \[1, 2, 5, 8\] on cpu; got float32 \[1, 1, 5, 8\] on cpu",
        ),
        ((out, out.double(), lse), r"out must be float32 .* got float64"),
        (
            (out, out, lse[:, :, :3]),
            r"lse must be float32 \[1, 2, 5\] on cpu; got float32 \[1, 2, 3\] on cpu",
        ),
    ):
        dout, o, sums = wrong
        with pytest.raises(ValueError, match=message):
            accel.flash_attention_3_backward(dout, q, q, q, o, sums, backend="math")


def test_flash_attention_3_is_never_something_else():
    q = random(1, 2, 3, 8)
    with pytest.raises(
        ValueError,
        match=(
            r"backend hopper cannot do this: it needs a CUDA GPU; the tensors are on cpu.* These"
            r" can: flash"
        ),
    ):
        accel.FlashAttention3()(q, q, q)
    with pytest.raises(ValueError, match=r"precision is one of fp16, bf16, fp8; got 'fp4'"):
        accel.FlashAttention3("fp4")
    assert "precision=fp16, causal=True" in repr(accel.FlashAttention3("fp16", causal=True))


@pytest.mark.parametrize("transform", [torch.vmap, lambda f: torch.func.grad(lambda x: f(x).sum())])
def test_transforms_of_torch_func_are_refused_by_name(transform):
    with pytest.raises(ValueError, match=r"within torch\.func's transforms.* part of the batch"):
        transform(lambda x: attention(x, x, x))(random(2, 1, 2, 5, 8, grad=False))


def test_an_exported_program_holds_one_operation_and_computes_the_same():
    class Net(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, causal=True)

    given = [random(2, 2, 5, 8, grad=False) for _ in range(3)]
    program = torch.export.export(Net(), tuple(given))
    called = [n.target for n in program.graph.nodes if n.op == "call_function"]
    assert called[0] is torch.ops.gpudeck.attention_forward.default
    torch.testing.assert_close(program.module()(*given), attention(*given, causal=True))
