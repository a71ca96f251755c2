"""Compute exact attention over several GPUs, each of which holds a part of the sequence.

torch is imported with the first name taken from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudeck.accel.distributed.api import distributed_attention, explain
    from gpudeck.accel.distributed.choice import Choice
    from gpudeck.accel.distributed.ring_attention import (
        RingAttention,
        global_accumulate,
        local_attention,
        ring_attention_backward,
        ring_attention_forward,
        ring_send_recv,
        shard_sequence,
    )
    from gpudeck.accel.distributed.sharding import (
        Span,
        balanced_spans,
        positions,
        shard,
        spans_of,
        unshard,
    )

_HOME = {
    "Choice": "choice",
    "RingAttention": "ring_attention",
    "Span": "sharding",
    "balanced_spans": "sharding",
    "distributed_attention": "api",
    "explain": "api",
    "global_accumulate": "ring_attention",
    "local_attention": "ring_attention",
    "positions": "sharding",
    "ring_attention_backward": "ring_attention",
    "ring_attention_forward": "ring_attention",
    "ring_send_recv": "ring_attention",
    "shard": "sharding",
    "shard_sequence": "ring_attention",
    "spans_of": "sharding",
    "unshard": "sharding",
}

__all__ = [
    "Choice",
    "RingAttention",
    "Span",
    "balanced_spans",
    "distributed_attention",
    "explain",
    "global_accumulate",
    "local_attention",
    "positions",
    "ring_attention_backward",
    "ring_attention_forward",
    "ring_send_recv",
    "shard",
    "shard_sequence",
    "spans_of",
    "unshard",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
