"""Offer FlashAttention-3 (arXiv 2407.08608) by name: our warp-specialised kernels for Hopper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention import passes
from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.dispatch import choose
from gpudeck.accel.attention.inputs import arrange, describe
from gpudeck.accel.attention.problem import dtype_name

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16}
FP8 = "fp8"
BACKEND = "hopper"


class FlashAttention3(torch.nn.Module):
    """Compute attention in one precision, by our Hopper kernels unless another backend is named.

    Inputs are cast to the precision; the output has the dtype of q.
    """

    def __init__(self, precision: str = "bf16", **options: Any) -> None:
        """Create the module.

        Args:
            precision: "fp16", "bf16" or "fp8", which has no gradients and computes in bfloat16
                what it does not multiply.
            options: causal, window, scale, and another backend than the Hopper kernels; see
                `accel.attention.attention`.

        Raises:
            ValueError: if `precision` has another value.
        """
        super().__init__()
        if precision not in (*PRECISIONS, FP8):
            raise ValueError(
                f"precision is one of {', '.join((*PRECISIONS, FP8))}; got {precision!r}"
            )
        self.precision, self.options = precision, options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """Run attention.

        Args:
            options: seqlens and layout; see `accel.attention.attention`.

        Raises:
            ValueError: if the GPU is not a Hopper; the message names the backends that can run.
        """
        q_cast, k, v = (t.to(PRECISIONS.get(self.precision, torch.bfloat16)) for t in (q, k, v))
        choices: dict[str, Any] = {"backend": BACKEND, **self.options, **options}
        if self.precision == FP8:
            choices["precision"] = FP8
        out: Tensor = attention(q_cast, k, v, **choices)
        return out.to(q.dtype)

    def extra_repr(self) -> str:
        """Return the text that printing the module shows."""
        shown = {"precision": self.precision, **self.options}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


def flash_attention_3_forward(
    q: Tensor, k: Tensor, v: Tensor, *, backend: str = BACKEND, **options: Any
) -> tuple[Tensor, Tensor]:
    """Run the forward pass alone, without recording it for gradients.

    Args:
        options: causal, window, scale and softcap; see `accel.attention.attention`.

    Returns:
        The output like q, and lse, float32 [B,H,Sq].
    """
    with torch.no_grad():
        out, lse = attention(q, k, v, **options, backend=backend, return_lse=True)
    return out, lse


def flash_attention_3_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    backend: str = BACKEND,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq, dk and dv from the gradient of the output and the results of the forward pass.

    Args:
        options: those of the forward pass, and deterministic; see `accel.attention.attention`.

    Raises:
        ValueError: if the tensors do not fit together.
    """
    x = arrange(q, k, v, None, None, "bhsd")
    problem = describe(q, k, v, **options)
    for name, tensor, shape, dtype in (
        ("dout", dout, q.shape, q.dtype),
        ("out", out, q.shape, q.dtype),
        ("lse", lse, q.shape[:3], torch.float32),
    ):
        if (tensor.shape, tensor.dtype, tensor.device) != (shape, dtype, q.device):
            raise ValueError(
                f"{name} must be {dtype_name(dtype)} {list(shape)} on {q.device}; got"
                f" {dtype_name(tensor.dtype)} {list(tensor.shape)} on {tensor.device}"
            )
    chosen = choose(problem, backend, "backward").backend
    with torch.no_grad():
        dq, dk, dv, _ = passes.backward(dout, x, out, lse, problem, chosen)
    return dq, dk, dv
