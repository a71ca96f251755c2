"""Run our attention under torch.nn.functional.scaled_dot_product_attention.

PyTorch's registry of flash attention implementations puts ours in place of its FlashAttention-2 on
CUDA. PyTorch itself decides, call by call, whether its flash attention is used: calls with a mask,
in float32, or with causal sequences of two lengths stay with its other kernels. It may prefer
cuDNN, which `install` therefore switches off until `uninstall`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.library import Library
from torch.nn import attention as registry

from gpudeck.accel.attention.backends.base import like
from gpudeck.accel.attention.inputs import Inputs, problem_of, rules_of
from gpudeck.accel.attention.passes import automatic_backward, automatic_forward
from gpudeck.accel.attention.problem import Problem

NAME = "gpudeck"

Forward = tuple[Tensor, Tensor, None, None, int, int, Tensor, Tensor, Tensor]


@dataclass
class _Installed:
    """Keep the kernels registered, and the setting to restore."""

    library: Library | None
    cudnn: bool

    def remove(self) -> None:
        """Unregister the kernels; the registry calls it."""
        self.library = None
        torch.backends.cuda.enable_cudnn_sdp(self.cudnn)


def install() -> None:
    """Make scaled_dot_product_attention on CUDA run `attention` with backend `auto`.

    Raises:
        RuntimeError: if this version of PyTorch has no such registry.
    """
    if not hasattr(registry, "register_flash_attention_impl"):
        raise RuntimeError(
            f"torch {torch.__version__} has no registry of attention implementations; 2.11 or newer"
            " is needed"
        )
    registry.register_flash_attention_impl(NAME, register_fn=_register)
    registry.activate_flash_attention_impl(NAME)


def uninstall() -> None:
    """Restore PyTorch's own kernels; do nothing if ours are not installed."""
    if is_installed():
        registry.restore_flash_attention_impl()


def is_installed() -> bool:
    """Return True if ours is the active implementation."""
    return getattr(registry, "current_flash_attention_impl", lambda: None)() == NAME


def sdpa_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> Forward:
    """Implement aten::_scaled_dot_product_flash_attention.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D].

    With dropout, which our kernels do not offer, PyTorch's FlashAttention-2 runs.
    """
    if dropout_p:
        rows = (t.transpose(1, 2) for t in (q, k, v))
        sizes = (None, None, q.shape[2], k.shape[2])
        out, lse, state, unused, mask = torch.ops.aten._flash_attention_forward(
            *rows, *sizes, dropout_p, is_causal, debug, scale=scale
        )
        return out.transpose(1, 2), lse, None, None, q.shape[2], k.shape[2], state, unused, mask
    x, problem = _problem(q, k, v, is_causal, scale)
    out, lse = automatic_forward(x, problem)
    state, unused = (
        torch.zeros(2, dtype=torch.uint64, device=q.device),
        torch.zeros((), dtype=torch.uint64, device=q.device),
    )
    return out, lse, None, None, q.shape[2], k.shape[2], state, unused, q.new_empty(0)


def sdpa_backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    starts_q: Tensor | None,
    starts_k: Tensor | None,
    longest_q: int,
    longest_k: int,
    dropout_p: float,
    is_causal: bool,
    state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Implement aten::_scaled_dot_product_flash_attention_backward."""
    if dropout_p:
        rows = (t.transpose(1, 2) for t in (dout, q, k, v, out))
        sizes = (lse, starts_q, starts_k, longest_q, longest_k)
        grads = torch.ops.aten._flash_attention_backward(
            *rows, *sizes, dropout_p, is_causal, state, unused, scale=scale
        )
        return tuple(g.transpose(1, 2) for g in grads)
    x, problem = _problem(q, k, v, is_causal, scale)
    grads = automatic_backward(dout, x, out, lse, problem)
    dq, dk, dv = (like(g, t) for g, t in zip(grads[:3], (q, k, v), strict=True))
    return dq, dk, dv


def _problem(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None
) -> tuple[Inputs, Problem]:
    x = Inputs(q, k, v)
    deterministic = torch.are_deterministic_algorithms_enabled()
    return x, problem_of(x, rules_of(q, causal, scale=scale), deterministic)


def _register() -> _Installed:
    library = Library("aten", "IMPL", "CUDA")
    library.impl("_scaled_dot_product_flash_attention", sdpa_forward, "CUDA")
    library.impl("_scaled_dot_product_flash_attention_backward", sdpa_backward, "CUDA")
    handle = _Installed(library, torch.backends.cuda.cudnn_sdp_enabled())
    torch.backends.cuda.enable_cudnn_sdp(False)
    return handle
