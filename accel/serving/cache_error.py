"""Measure what a quantized cache changes of a model's own predictions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.errors import NOT_FINITE, ModelRefused
from gpudeck.accel.serving.memory import BLOCK, CacheError, CacheFormat
from gpudeck.accel.serving.runner import Runner
from gpudeck.accel.serving.scheduler import Work
from gpudeck.accel.serving.transformer import Transformer
from gpudeck.accel.serving.world import Vocabulary

_TOKENS = 64
"""Few, as a large model on a CPU takes a second for some of them."""
_TEXT = """\
When two people share one machine, each of them wants to know how long the other will need it. The
first writes a program, starts it in the evening, and finds in the morning that it has stopped:

def mean(values: list[float]) -> float:
    return sum(values) / len(values)  # an empty list?
"""


@dataclass
class _Read:
    """A text that begins with a token, after which all others are proposals."""

    tokens: list[int]
    blocks: list[int]

    def table(self) -> list[int]:
        """Return its blocks in order."""
        return self.blocks


def cache_error(model: Transformer, tokenizer: Vocabulary, format: CacheFormat) -> CacheError:  # noqa: A002
    """Read a short text with an exact and with a quantized cache, and compare what follows.

    Args:
        model: A loaded model.
        tokenizer: Its own, so that the text is one that the model can read.
        format: Of the quantized cache.

    Raises:
        ModelRefused: The model's output is not finite.
    """
    tokens = tokenizer.encode(_TEXT, len(_TEXT) + 2)[: min(_TOKENS, model.config.context)]
    exact, quantized = (_log_probabilities(model, tokens, kept) for kept in ("auto", format))
    divergence = (exact.exp() * (exact - quantized)).sum(dim=1).mean()
    if not math.isfinite(float(divergence)):
        raise ModelRefused(NOT_FINITE)
    same = int((exact.argmax(dim=1) == quantized.argmax(dim=1)).sum())
    return CacheError(len(tokens), max(0.0, float(divergence)), same)


def _log_probabilities(model: Transformer, tokens: list[int], format: CacheFormat) -> Tensor:  # noqa: A002
    """Return the logarithms of the probabilities [T, V] of what follows each token, in fp32."""
    blocks = -(-len(tokens) // BLOCK)
    cache = PagedCache(model.config, blocks, model.device, model.dtype, format)
    # Proposals get logits of their own, on a GPU by the same kernels as a served prompt.
    read = Work(_Read(tokens[:1], list(range(blocks))), 0, tokens, len(tokens) - 1)
    return torch.log_softmax(Runner(model, cache).run([read]).logits, dim=1)
