"""What each kind of linear attention takes, and how it is the recurrence of `problem`.

Sources: retention: Sun et al., arXiv 2307.08621; GLA: Yang et al., arXiv 2312.06635; SSD (Mamba-2):
Dao and Gu, arXiv 2405.21060; gated delta rule: Yang et al., arXiv 2412.06464; KDA: Kimi Linear,
arXiv 2510.26692; RWKV-7: Peng et al., arXiv 2503.14456.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.problem import Rule

_VALUES, _DELTA = Rule("values"), Rule("corrections")
_BOTH = Rule("both", exclusive=True, gentle=True)


@dataclass(frozen=True)
class Kind:
    """Describe a kind: its rule and the arguments that it needs besides q, k and v."""

    name: str
    rule: Rule
    decay: Literal["head", "channel", "fixed"]
    """A decay a head, one a channel of the keys, or one that depends on the head's number only."""
    needs: tuple[str, ...] = ()
    """Those of beta, a and b that must be given."""
    summary: str = ""


KINDS = {
    kind.name: kind
    for kind in (
        Kind("retention", _VALUES, "fixed", (), "a constant decay for each head"),
        Kind("gla", _VALUES, "channel", (), "a decay for each token and key channel"),
        Kind("ssd", _VALUES, "head", (), "Mamba-2: a decay for each token and head"),
        Kind("gdn", _DELTA, "head", ("beta",), "gated delta rule"),
        Kind("kda", _DELTA, "channel", ("beta",), "delta rule with a decay for each channel"),
        Kind("rwkv7", _BOTH, "channel", ("a", "b"), "RWKV-7's generalised delta rule"),
    )
}


@lru_cache(maxsize=64)
def retention_decay(heads: int, device: torch.device) -> Tensor:
    """Return the log decay of each head, log(1 - 2^(-5-h)), float32 [heads] (section 2.2)."""
    with torch.inference_mode(False):  # others may train with it
        numbers = torch.arange(heads, device=device, dtype=torch.float32)
        return torch.log1p(-torch.exp2(-5.0 - numbers))
