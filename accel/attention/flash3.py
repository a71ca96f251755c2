"""Offer FlashAttention-3 (arXiv 2407.08608) by name: our warp-specialised kernels for Hopper."""

from __future__ import annotations

import torch
from torch import Tensor

from accel.attention import passes
from accel.attention.api import NO_WINDOW, attention
from accel.attention.dispatch import choose
from accel.attention.inputs import Inputs, Window, arrange, as_given, problem_of
from accel.attention.problem import Problem, dtype_name
from accel.attention.ragged import Ragged

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16}
BACKEND = "hopper"


class FlashAttention3(torch.nn.Module):
    """Compute attention in one precision by our Hopper kernels.

    Inputs are cast to the precision; the output has the dtype of q.
    """

    def __init__(
        self,
        precision: str = "bf16",
        *,
        causal: bool = False,
        window: Window = NO_WINDOW,
        scale: float | None = None,
    ) -> None:
        """Create the module.

        Raises:
            ValueError: if `precision` is neither "fp16" nor "bf16".
        """
        super().__init__()
        if precision not in PRECISIONS:
            raise ValueError(f"precision is one of {', '.join(PRECISIONS)}; got {precision!r}")
        self.precision, self.causal, self.window, self.scale = precision, causal, window, scale

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        seqlens: Ragged | None = None,
        layout: str = "bhsd",
    ) -> Tensor:
        """Run attention; see `accel.attention.attention`.

        Raises:
            ValueError: if the GPU is not a Hopper; the message names the backends that can run.
        """
        q_cast, k, v = (t.to(PRECISIONS[self.precision]) for t in (q, k, v))
        out = attention(
            q_cast,
            k,
            v,
            causal=self.causal,
            window=self.window,
            scale=self.scale,
            seqlens=seqlens,
            layout=layout,
            backend=BACKEND,
        )
        return out.to(q.dtype)

    def extra_repr(self) -> str:
        """Return the text that printing the module shows."""
        return (
            f"precision={self.precision}, causal={self.causal}, window={self.window},"
            f" scale={self.scale}"
        )


def flash_attention_3_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Window = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    seqlens: Ragged | None = None,
    layout: str = "bhsd",
    backend: str = BACKEND,
) -> tuple[Tensor, Tensor]:
    """Run the forward pass alone, without recording it for gradients.

    Returns:
        The output in the layout of q, and lse, float32 [B,H,Sq] (ragged: [1,H,T]).
    """
    x, problem = _asked(q, k, v, causal, window, scale, softcap, seqlens, layout)
    with torch.no_grad():
        out, lse = passes.forward(x, problem, choose(problem, backend).backend)
    return as_given(out, seqlens, layout), lse


def flash_attention_3_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    causal: bool = False,
    window: Window = NO_WINDOW,
    scale: float | None = None,
    softcap: float = 0.0,
    seqlens: Ragged | None = None,
    layout: str = "bhsd",
    deterministic: bool = False,
    backend: str = BACKEND,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq, dk and dv from the gradient of the output and the results of the forward pass.

    Raises:
        ValueError: if the tensors do not fit together.
    """
    x, problem = _asked(q, k, v, causal, window, scale, softcap, seqlens, layout, deterministic)
    for name, given in (("dout", dout), ("out", out)):
        if given.shape != q.shape or given.dtype != q.dtype or given.device != q.device:
            raise ValueError(f"{name} must be {_described(q)} as q is; got {_described(given)}")
    if lse.shape != x.q.shape[:3] or lse.dtype != torch.float32 or lse.device != q.device:
        raise ValueError(
            f"lse must be float32 {list(x.q.shape[:3])} on {q.device}; got {_described(lse)}"
        )
    d, o, _ = arrange(dout, out, out, None, seqlens, layout)[:3]
    with torch.no_grad():
        grads = passes.backward(d, x, o, lse, problem, choose(problem, backend, "backward").backend)
    dq, dk, dv = (as_given(g, seqlens, layout) for g in grads[:3])
    return dq, dk, dv


def _asked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool,
    window: Window,
    scale: float | None,
    softcap: float,
    seqlens: Ragged | None,
    layout: str,
    deterministic: bool = False,
) -> tuple[Inputs, Problem]:
    x = arrange(q, k, v, None, seqlens, layout)
    return x, problem_of(
        x, causal=causal, window=window, scale=scale, softcap=softcap, deterministic=deterministic
    )


def _described(x: Tensor) -> str:
    return f"{dtype_name(x.dtype)} {list(x.shape)} on {x.device}"
