"""From logits to the next token: greedy, or by temperature and nucleus (top-p), repeatable by its seed."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Sampler:
    """Chooses tokens. The same seed and the same logits give the same tokens."""

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0) -> None:
        """`temperature` 0 is greedy; `top_p` keeps the most likely tokens that together reach this probability.

        Raises ValueError for a temperature below 0 or a top_p outside (0, 1].
        """
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature is 0 (greedy) or more; got {temperature}")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is above 0 and at most 1; got {top_p}")
        self._temperature, self._top_p = temperature, top_p
        self._generator = torch.Generator().manual_seed(seed)

    def __call__(self, logits: Tensor) -> int:
        """logits [V], any device and floating-point type -> token. Raises ValueError where the model computed no numbers."""
        if self._temperature == 0:
            token = int(logits.argmax())
            if not math.isfinite(float(logits[token])):
                raise ValueError(_NOT_FINITE)
            return token
        scaled = logits.float().cpu() / self._temperature
        if not torch.isfinite(scaled).all():
            raise ValueError(_NOT_FINITE)
        likely, tokens = torch.softmax(scaled, dim=-1).sort(descending=True)
        kept = likely.cumsum(0) - likely < self._top_p  # the token that reaches top_p is the last one kept
        return int(tokens[torch.multinomial(likely * kept, 1, generator=self._generator)])


_NOT_FINITE = "the model's output is not finite: its weights are damaged, or overflow in this dtype"
