"""Search for the likeliest short texts after a prompt, best first, with their probabilities."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from accel.rwkv.model import RWKV7
from accel.rwkv.tokenizer import END
from assistant.engine.generate import DecodeState
from assistant.idle import Cancelled

MIN_PROBABILITY = 0.02
"""The search ignores texts that are less likely."""
MAX_STEPS = 256
"""The search ends after this many steps; the model processes at most one token in each."""
_BRANCHES = 4
"""The search considers this many of the likeliest next tokens."""


class _Candidate(NamedTuple):
    rank: float
    """Minus its probability, so that the likeliest is first in the heap."""
    number: int
    tokens: tuple[int, ...]
    before: DecodeState
    """The state before the last token, which is processed only when the candidate is extended."""


def likeliest(
    model: RWKV7, start: DecodeState, count: int, cancelled: Callable[[], bool]
) -> list[tuple[tuple[int, ...], float]]:
    """Return up to `count` whole texts as tokens and probability, the likeliest first.

    The result is exact for texts above MIN_PROBABILITY that are found within MAX_STEPS. If
    the model is certain, the search takes as long as greedy decoding.

    Raises:
        Cancelled: `cancelled` returned True.
        ValueError: The model's output is not finite.
    """
    numbers = itertools.count()
    open_texts = [_Candidate(-1.0, next(numbers), (), start)]
    found: list[tuple[tuple[int, ...], float]] = []
    for _ in range(MAX_STEPS):
        while open_texts and open_texts[0].tokens[-1:] == (END,):
            ended = heapq.heappop(open_texts)
            found.append((ended.tokens[:-1], -ended.rank))
        if not open_texts or len(found) >= count:
            break
        if cancelled():
            raise Cancelled
        best, after = heapq.heappop(open_texts), start
        if best.tokens:
            after = DecodeState(*model.forward(best.tokens[-1:], best.before.state))
        chances, tokens = torch.softmax(after.logits.double(), dim=-1).topk(_BRANCHES)
        if not math.isfinite(float(chances[0])):
            raise ValueError(
                "the model's output is not finite: its weights are damaged, or overflow in this "
                "dtype"
            )
        for chance, token in zip(chances.tolist(), tokens.tolist(), strict=True):
            if -best.rank * chance >= MIN_PROBABILITY:
                longer = (*best.tokens, token)
                candidate = _Candidate(best.rank * chance, next(numbers), longer, after)
                heapq.heappush(open_texts, candidate)
    return found[:count]
