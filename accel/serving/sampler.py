"""Choose the next tokens of a batch. Each row's choice depends on nothing but the row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gpudeck.accel.serving.request import Choice, Sampling

_MASK = 2**64 - 1


@dataclass
class Row:
    """Say how the token of one row is chosen."""

    sampling: Sampling
    number: int
    """Of the token in its answer: with the seed, it is the source of chance."""
    prompt: frozenset[int] = frozenset()
    """The tokens of the prompt, for a penalty of repetition."""
    counts: Counter[int] = field(default_factory=Counter)
    """How often the answer has each token, for penalties."""
    allowed: Tensor | None = None
    """[V] bool on the CPU: tokens that a grammar allows."""


@dataclass(frozen=True)
class Scores:
    """Hold what the model says of the next tokens."""

    logits: Tensor
    """[n, V] fp32"""
    best: Tensor
    """[n, 2] fp32: the largest, or NaN if there is one, and its token."""

    @classmethod
    def of(cls, logits: Tensor) -> Scores:
        """Find the largest of logits; of few rows on a GPU in two stages."""
        staged = logits.is_cuda and len(logits) <= 8
        return cls(logits, largest(logits, math.gcd(logits.shape[1], 512) if staged else 1))

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: slice | list[int]) -> Scores:
        return Scores(self.logits[rows], self.best[rows])


def largest(logits: Tensor, parts: int) -> Tensor:
    """Return the largest of each row, or NaN, and its token: [n, 2] in fp32.

    Args:
        logits: [n, V]; n is 0 in a step of prompts that chooses no token.
        parts: Of a row, which are searched side by side. They divide V.
    """
    if parts == 1:
        return torch.stack([part.float() for part in logits.max(dim=1)], dim=1)
    size = logits.shape[1] // parts
    values, within = logits.view(len(logits), parts, size).max(dim=2)
    highest, part = values.max(dim=1, keepdim=True)
    return torch.cat((highest, part * size + within.gather(1, part)), dim=1)


def choose(scores: Scores, rows: Sequence[Row]) -> list[Choice | None]:
    """Choose a token for each row.

    Returns:
        The choices; None for a row that has a NaN, or allows no token.
    """
    plain, scores = scores.logits, _constrained(scores, rows)
    best = scores.best.tolist()  # a NaN is the highest
    chosen = [int(token) for _, token in best]
    for nucleus in (True, False):
        drawn = [
            i
            for i, row in enumerate(rows)
            if row.sampling.temperature > 0 and (row.sampling.top_p < 1) == nucleus
        ]
        if drawn:
            part = scores.logits if len(drawn) == len(rows) else scores.logits[drawn]
            tokens = _draw(part, [rows[i] for i in drawn], nucleus).tolist()
            for i, token in zip(drawn, tokens, strict=True):
                chosen[i] = token
    return [
        None if not math.isfinite(highest)
        else _report(plain[i], token, row.sampling.logprobs) if row.sampling.logprobs >= 0
        else Choice(token)
        for i, ((highest, _), token, row) in enumerate(zip(best, chosen, rows, strict=True))
    ]  # fmt: skip


def _constrained(scores: Scores, rows: Sequence[Row]) -> Scores:
    """Return the scores with penalties, and without what a grammar forbids."""
    if not any(row.sampling.penalizes or row.allowed is not None for row in rows):
        return scores
    logits = scores.logits.clone()
    for i, row in enumerate(rows):
        sampling = row.sampling
        if sampling.repetition != 1 and (seen := row.prompt | row.counts.keys()):
            at = torch.tensor(sorted(seen), device=logits.device)
            found = logits[i, at]
            divided = torch.where(
                found > 0, found / sampling.repetition, found * sampling.repetition
            )
            logits[i, at] = divided
        if (sampling.presence or sampling.frequency) and row.counts:
            at = torch.tensor(list(row.counts), device=logits.device)
            times = torch.tensor(list(row.counts.values()), device=logits.device)
            logits[i, at] -= sampling.presence + sampling.frequency * times
        if row.allowed is not None:
            logits[i].masked_fill_(~row.allowed.to(logits.device), -torch.inf)
    return Scores.of(logits)


def _draw(logits: Tensor, rows: Sequence[Row], nucleus: bool) -> Tensor:
    """Return a token [n] for each row, by the inverse of its distribution function.

    With `nucleus` (top_p) that is over the tokens by their probability, otherwise by number.
    """

    def each(name: str) -> Tensor:
        values = [float(getattr(row.sampling, name)) for row in rows]
        return torch.tensor(values, device=logits.device, dtype=torch.float32).unsqueeze(1)

    likely = torch.softmax(logits / each("temperature").clamp_min(1e-6), dim=1)
    kept = likely >= each("min_p") * likely.amax(dim=1, keepdim=True)
    cut = [row.sampling.top_k or logits.shape[1] for row in rows]
    if (most := min(max((k for k in cut if k < logits.shape[1]), default=0), logits.shape[1])) > 0:
        highest = likely.topk(most, dim=1).values
        at = torch.tensor([[min(k, most) - 1] for k in cut], device=logits.device)
        limited = torch.tensor([[k < logits.shape[1]] for k in cut], device=logits.device)
        kept &= ~limited | (likely >= highest.gather(1, at))
    weights = torch.where(kept, likely, 0)
    chance = [[uniform(row.sampling.seed, row.number)] for row in rows]
    target = torch.tensor(chance, device=logits.device, dtype=torch.float64)
    if not nucleus:
        upto = weights.double().cumsum(dim=1)
        found = torch.searchsorted(upto, target * upto[:, -1:], right=True)
        return found.squeeze(1).clamp_max(logits.shape[1] - 1)
    ordered, order = weights.sort(dim=1, descending=True, stable=True)
    upto = ordered.double().cumsum(dim=1)
    # The token that reaches top_p is the last one kept.
    last = (upto - ordered < each("top_p") * upto[:, -1:]).sum(dim=1, keepdim=True) - 1
    found = torch.searchsorted(upto, target * upto.gather(1, last), right=True)
    return order.gather(1, torch.minimum(found, last)).squeeze(1)


def _report(logits: Tensor, token: int, count: int) -> Choice:
    """Return a choice with the logarithms of probabilities, as the model gave them."""
    logprobs = torch.log_softmax(logits, dim=0)
    values, tokens = logprobs.topk(min(count, len(logits)))
    likely = tuple(zip(tokens.tolist(), values.tolist(), strict=True))
    return Choice(token, float(logprobs[token]), likely)


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
