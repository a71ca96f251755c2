"""The likeliest short texts that follow a place, each with its probability: best-first search, so exact as far as it goes."""

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

LEAST = 0.02
"""Texts that are less likely are not looked for."""
STEPS = 256
"""Tokens that the model takes in at most."""
_BRANCHES = 4
"""Tokens that a text may go on with at most, at one place."""


class _Begun(NamedTuple):
    rank: float
    """Minus its probability: the likeliest is the first."""
    number: int
    tokens: tuple[int, ...]
    before: DecodeState
    """After all its tokens but the last, which is taken in only once it is this one's turn."""


def likeliest(
    model: RWKV7, memory: DecodeState, count: int, cancelled: Callable[[], bool]
) -> list[tuple[tuple[int, ...], float]]:
    """At most `count` whole texts, tokens and probability, the likeliest first. A model that is sure costs what greedy decoding costs.

    Raises Cancelled, and ValueError where the model computes no numbers.
    """
    numbers = itertools.count()
    begun, found = [_Begun(-1.0, next(numbers), (), memory)], list[tuple[tuple[int, ...], float]]()
    for _ in range(STEPS):
        while begun and begun[0].tokens[-1:] == (END,):
            ended = heapq.heappop(begun)
            found.append((ended.tokens[:-1], -ended.rank))
        if not begun or len(found) >= count:
            break
        if cancelled():
            raise Cancelled
        at = heapq.heappop(begun)
        after = (
            DecodeState(*model.forward(at.tokens[-1:], at.before.state)) if at.tokens else at.before
        )
        chances, tokens = torch.softmax(after.logits.double(), dim=-1).topk(_BRANCHES)
        if not math.isfinite(float(chances[0])):
            raise ValueError(
                "the model's output is not finite: its weights are damaged, or overflow in this dtype"
            )
        for chance, token in zip(chances.tolist(), tokens.tolist(), strict=True):
            if -at.rank * chance >= LEAST:
                heapq.heappush(
                    begun, _Begun(at.rank * chance, next(numbers), (*at.tokens, token), after)
                )
    return found[:count]
