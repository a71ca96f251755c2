"""Offer attention over several GPUs to Hugging Face's models.

Call `register(group, layout)`, load the model with `attn_implementation="gpudeck_cp"`, and give
each rank its shard of the tokens, with `position_ids` from `gpudeck.accel.distributed.positions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from gpudeck.accel.distributed.api import distributed_attention
from gpudeck.accel.distributed.sharding import Spans

NAME = "gpudeck_cp"


def register(
    group: dist.ProcessGroup | DeviceMesh | None = None,
    layout: str | Sequence[Spans] = "zigzag",
    **options: Any,
) -> None:
    """Make "gpudeck_cp" an attention implementation of the installed transformers.

    Args:
        group: the ranks that divide each sequence; all by default.
        layout: how they divide it.
        options: further ones of `distributed_attention`, such as tokens, seqlens and strategy.

    Raises:
        ImportError: if transformers is not installed.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    attend = partial(attention_forward, group=group, layout=layout, **options)
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, no_mask)


def no_mask(*_: Any, **__: Any) -> None:
    """Return no mask: which keys are visible follows from causality and the window alone."""


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
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    *,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    layout: str | Sequence[Spans] = "zigzag",
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention for a module of transformers over the tokens of all ranks.

    Shapes: query is [B,H,S,D], key and value are [B,Hkv,S,D] with the tokens of this rank.

    Returns:
        The output [B,S,H,D], and None instead of weights.

    Raises:
        ValueError: for a mask, dropout or a cache, which cannot be divided.
    """
    if attention_mask is not None or dropout or key.shape[2] != query.shape[2]:
        raise ValueError(
            f"attention implementation {NAME} takes no mask, dropout or cache: pad no batch, pass"
            " use_cache=False, and load the model with another implementation for generation"
        )
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    asked = {name: others[name] for name in _OPTIONS if name in others}
    out = distributed_attention(
        query, key, value, group=group, layout=layout, causal=bool(causal), scale=scaling,
        window=(None if sliding_window is None else sliding_window - 1, None),
        softcap=softcap or 0.0, sink=s_aux, **asked,
    )  # fmt: skip
    assert isinstance(out, Tensor)
    return out.transpose(1, 2).contiguous(), None


_OPTIONS = ("tokens", "seqlens", "strategy", "backward_strategy", "backend", "deterministic")
