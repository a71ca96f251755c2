"""Recognise masks that hide exactly the keys after a query, however a program has made them.

The proof is the mask itself: all its elements are compared, once for each call. On a GPU the
comparison makes the host wait, so only masks that are large enough to be worth that are compared,
and none while a CUDA graph is captured. Compiled programs pass their masks as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.inject.form import ABSORBS

WORTH_WAITING = 2**18
"""Elements from which a mask on a GPU is compared: 512 queries and keys. On an H200 a batch of 32
with 32 heads of that length takes 3.2 times as long with a mask as causal attention does."""


def hides_later_keys(hidden: Tensor) -> bool:
    """Return True if a mask hides the keys after each query, and no others.

    The last query stands at the last key.

    Shapes: bool [..., queries, keys], or smaller where a mask is broadcast.
    """
    if not _worth_comparing(hidden):
        return False
    queries, keys = hidden.shape[-2:]
    return torch.equal(hidden.view(queries, keys), _later(queries, keys, hidden.device))


def adds_to_later_keys(bias: Tensor, *, infinite: bool = False) -> bool:
    """Return True if a bias is 0 but for the keys after each query, which it hides.

    Args:
        infinite: it hides them by -inf.

    Shapes: [..., queries, keys] of a floating-point dtype.
    """
    if bias.requires_grad or not _worth_comparing(bias):
        return False
    queries, keys = bias.shape[-2:]
    bias = bias.view(queries, keys)
    later = _later(queries, keys, bias.device)
    hides = bias == -torch.inf if infinite else bias <= ABSORBS
    return torch.equal(hides, later) and not bool((bias[~later] != 0).any())


def _worth_comparing(t: Tensor) -> bool:
    if torch.compiler.is_compiling() or t.ndim < 2 or t.numel() != t.shape[-2] * t.shape[-1]:
        return False
    queries, keys = t.shape[-2:]
    if not 1 < queries <= keys:
        return False
    if t.device.type == "cpu":  # two elements tell most other masks apart
        corners = t[..., 0, -1], t[..., -1, 0]
        return bool(corners[0]) and not bool(corners[1])
    waits = t.device.type == "cuda" and t.numel() >= WORTH_WAITING
    return waits and not torch.cuda.is_current_stream_capturing()


def _later(queries: int, keys: int, device: torch.device) -> Tensor:
    places = torch.arange(keys, device=device)
    return places > places[keys - queries :, None]
