"""Tensors in, tensors out: accelerated attention and its workloads.

`import accel` costs nothing; torch is imported with the first name taken from here that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel import attention
    from accel.attention.api import explain
    from accel.attention.flash3 import FlashAttention3, flash_attention_3_backward, flash_attention_3_forward
    from accel.attention.frameworks.flash_attn import flash_attn_func, flash_attn_varlen_func
    from accel.attention.frameworks.sdpa import install, uninstall

__all__ = [
    "FlashAttention3",
    "attention",
    "explain",
    "flash_attention_3_backward",
    "flash_attention_3_forward",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "install",
    "uninstall",
]

_HOME = {
    "FlashAttention3": "attention.flash3",
    "explain": "attention.api",
    "flash_attention_3_backward": "attention.flash3",
    "flash_attention_3_forward": "attention.flash3",
    "flash_attn_func": "attention.frameworks.flash_attn",
    "flash_attn_varlen_func": "attention.frameworks.flash_attn",
    "install": "attention.frameworks.sdpa",
    "uninstall": "attention.frameworks.sdpa",
}


def __getattr__(name: str) -> Any:
    if name == "attention":
        return importlib.import_module(f"{__name__}.attention")
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
