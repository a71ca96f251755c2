"""Offer our attention to Hugging Face's models.

Call `register()`, then `from_pretrained(..., attn_implementation="gpudeck")`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention.api import attention

NAME = "gpudeck"


def register() -> None:
    """Make "gpudeck" an attention implementation of the installed transformers.

    Raises:
        ImportError: if transformers is not installed.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention_forward)
    # its SDPA masks suit us: None if causality suffices, else bool [B,1,Sq,Sk]
    AttentionMaskInterface.register(NAME, sdpa_mask)


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention for a module of transformers.

    Without a mask, a causal module's queries are aligned with the first keys, as in its SDPA path:
    keys past them are empty places of a cache.

    Shapes: query is [B,H,Sq,D], key and value are [B,Hkv,Sk,D]; the mask is bool or added,
    [B,1,Sq,Sk]; the position bias is added, [B,H,Sq,Sk] or broadcast to it, and s_aux [H] are
    attention sinks, both with gradients.

    Returns:
        The output [B,Sq,H,D], and None instead of weights.

    Raises:
        ValueError: for dropout and the cache of continuous batching, which are not offered.
    """
    refused = ["cache"] if others.get("cache") is not None else []
    refused += ["dropout"] if dropout else []
    if refused:
        raise ValueError(
            f"attention implementation {NAME} offers no {', '.join(refused)}; load the model with"
            " another, such as sdpa"
        )
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(causal) and attention_mask is None and query.shape[2] > 1
    if causal and key.shape[2] > query.shape[2]:
        key, value = (t[:, :, : query.shape[2]] for t in (key, value))
        position_bias = None if position_bias is None else position_bias[..., : query.shape[2]]
    if causal and (key.shape[2] < query.shape[2] or position_bias is not None):
        causal = False
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
        attention_mask = seen.tril()
    if attention_mask is not None and attention_mask.dtype != torch.bool:
        if not attention_mask.is_floating_point():
            raise ValueError(
                "attention_mask must be bool or of a floating-point dtype, which is added; got"
                f" {attention_mask.dtype}"
            )
        attention_mask = attention_mask.to(query.dtype)
    if position_bias is not None:
        attention_mask = _add_bias(position_bias.to(query.dtype), attention_mask)
    out = attention(
        query, key, value, causal=causal, scale=scaling, softcap=softcap or 0.0,
        bias=attention_mask, sink=s_aux,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None


def _add_bias(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Add a mask, bool or added itself, to a position bias."""
    if mask is None:
        return bias
    if mask.dtype != torch.bool:
        return bias + mask
    return torch.where(mask, bias, torch.finfo(bias.dtype).min)
