"""Compute PyTorch's own samples of attention, its OpInfo, by ours, and compare with PyTorch.

Each sample is computed by ours, and in float64 by PyTorch's plain products. In float16 and bfloat16
the errors of the output and the gradients may be twice those of plain products in that dtype, with
as much as one rounding of the largest value; in float32 they may be what the OpInfo itself allows.
On a GPU, calls that PyTorch sends to its flash attention run through `accel.install`. It sends
those with a mask, in float32 or without four dimensions to its other kernels: `accel.attention`
computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.testing._internal.common_methods_invocations import op_db

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.frameworks import sdpa

NAME = "nn.functional.scaled_dot_product_attention"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
(OP,) = (op for op in op_db if op.name == NAME)
ABSOLUTE, RELATIVE = 5e-05, 5e-6
"""What the OpInfo allows in float32."""
COUNT = len(list(OP.sample_inputs("cpu", torch.float32)))


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", range(COUNT))
def test_sample(number: int, dtype: torch.dtype, contiguous: bool) -> None:
    """Compare the output and the gradients of one sample."""
    torch.manual_seed(0)
    sample = list(OP.sample_inputs(DEVICE, dtype, requires_grad=True))[number]
    if sample.kwargs.get("dropout_p"):
        pytest.skip("ours has no dropout")
    given = [sample.input, *sample.args]
    if not contiguous:
        given = [x.transpose(-1, -2).contiguous().transpose(-1, -2) for x in given]
    asked = {name: value for name, value in sample.kwargs.items() if name != "dropout_p"}
    exact = _gradients(_plain, given, asked, torch.float64)
    theirs = _gradients(_plain_in_dtype, given, asked, dtype)
    with _counted() as calls:
        ours = _gradients(_ours, given, asked, dtype)
    print("ran by", "installed" if calls else "attention")
    for mine, peer, true in zip(ours, theirs, exact, strict=True):
        if true.numel():
            allowed = 2 * (peer - true).abs().max() + torch.finfo(dtype).eps * true.abs().max()
            if dtype == torch.float32:
                allowed = max(allowed, ABSOLUTE + RELATIVE * true.abs().max())
            assert (mine - true).abs().max() <= allowed


def _gradients(
    run: Any, given: list[Tensor], asked: dict[str, Any], dtype: torch.dtype
) -> list[Tensor]:
    """Return the output and the gradients for a random one, in float64."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in given]
    mask = asked.get("attn_mask")
    if mask is not None and mask.is_floating_point():
        asked = {**asked, "attn_mask": mask.detach().to(dtype)}
    out = run(*leaves, **asked)
    generator = torch.Generator().manual_seed(1)
    dout = torch.randn(out.shape, generator=generator).to(out.device, out.dtype)
    found = torch.autograd.grad(out, leaves, dout)
    return [out.detach().double(), *(x.double() for x in found)]


def _plain(*given: Tensor, **asked: Any) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return scaled_dot_product_attention(*given, **asked)


def _plain_in_dtype(q: Tensor, k: Tensor, v: Tensor, **asked: Any) -> Tensor:
    scores = q @ k.transpose(-1, -2) * (asked.get("scale") or q.shape[-1] ** -0.5)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if asked.get("is_causal"):
        scores = scores.masked_fill(~seen, -torch.inf)
    if (mask := asked.get("attn_mask")) is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    return scores.softmax(-1) @ v


def _ours(q: Tensor, k: Tensor, v: Tensor, **asked: Any) -> Tensor:
    """Run ours as installed where PyTorch lets it, and by its own name for the rest."""
    square = q.shape[-2] == k.shape[-2] or not asked.get("is_causal")
    plain = asked.get("attn_mask") is None and q.dtype != torch.float32
    if DEVICE == "cuda" and plain and square and q.dim() == 4:
        return scaled_dot_product_attention(q, k, v, **asked)
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    q, k, v = (x.expand(*batch, *x.shape[-2:]) for x in (q, k, v))
    shape = q.shape[:-1]
    q, k, v = (x.reshape(1, -1, *x.shape[-2:]) if x.dim() == 3 else x for x in (q, k, v))
    mask = asked.get("attn_mask")
    if mask is not None and mask.dim() == 3:
        mask = mask[None]
    if asked.get("is_causal") and q.shape[2] != k.shape[2]:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    causal = bool(asked.get("is_causal")) and mask is None
    out = attention(q, k, v, causal=causal, bias=mask, scale=asked.get("scale"))
    return out.reshape(*shape, v.shape[-1])


@contextmanager
def _counted() -> Iterator[list[str]]:
    """Install ours on a GPU, and count the calls that reach it."""
    calls: list[str] = []
    if DEVICE == "cpu":
        yield calls
        return
    forward = sdpa.sdpa_forward

    def counting(*given: Any, **asked: Any) -> Any:
        calls.append("call")
        return forward(*given, **asked)

    sdpa.sdpa_forward = counting
    sdpa.install()
    try:
        yield calls
    finally:
        sdpa.uninstall()
        sdpa.sdpa_forward = forward
