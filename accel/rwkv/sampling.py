"""Choose the next token from logits: greedily, or by temperature and nucleus (top-p),
with a seed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MASK = 2**64 - 1


class Sampler:
    """Choose tokens.

    A sampler has no memory: its choice depends only on seed, token number and logits, so that a
    text can continue from anywhere.
    """

    def __init__(self, temperature: float = 0.0, top_p: float = 1.0, seed: int = 0) -> None:
        """Set how tokens are chosen.

        Args:
            temperature: 0 is greedy.
            top_p: Keep the most likely tokens that together reach this probability.
            seed: Another seed, another text.

        Raises:
            ValueError: The temperature is below 0, or top_p is outside (0, 1].
        """
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature is 0 (greedy) or more; got {temperature}")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is above 0 and at most 1; got {top_p}")
        self._temperature, self._top_p, self._seed = temperature, top_p, seed

    def __call__(self, logits: Tensor, number: int) -> int:
        """Return a token.

        Args:
            logits: [V], on any device, of any floating-point type.
            number: The number of the token in its text.

        Raises:
            ValueError: The logits are not finite.
        """
        if self._temperature == 0:
            token = int(logits.argmax())
            if not math.isfinite(float(logits[token])):
                raise ValueError(_NOT_FINITE)
            return token
        scaled = logits.double().cpu() / self._temperature
        if not torch.isfinite(scaled).all():
            raise ValueError(_NOT_FINITE)
        likely, tokens = torch.softmax(scaled, dim=-1).sort(descending=True, stable=True)
        upto = likely.cumsum(0)
        kept = int(
            (upto - likely < self._top_p).sum()
        )  # The token that reaches top_p is the last one kept.
        drawn = torch.searchsorted(
            upto[:kept], uniform(self._seed, number) * float(upto[kept - 1]), right=True
        )
        return int(tokens[min(int(drawn), kept - 1)])


def uniform(seed: int, number: int) -> float:
    """Return a number in [0, 1), by two rounds of SplitMix64.

    Source: Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014.
    """
    return (_mixed(_mixed(seed) + number) >> 11) * 2.0**-53


def _mixed(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


_NOT_FINITE = "the model's output is not finite: its weights are damaged, or overflow in this dtype"
