"""Propose tokens by a smaller model of the same tokenizer.

The smaller model draws with the chance of the answer itself: the same seed and number of the token.
Where both models think alike, the same chance leads both to the same token. The answer's own choice
does not depend on the proposal, so its distribution is the same with and without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.memory import BLOCK
from gpudeck.accel.serving.request import Request
from gpudeck.accel.serving.runner import Runner
from gpudeck.accel.serving.sampler import Row, Scores, choose
from gpudeck.accel.serving.scheduler import Work
from gpudeck.accel.serving.transformer import Transformer


class DraftModel:
    """Hold the smaller model, with a cache that the proposers of all texts share."""

    def __init__(self, model: Transformer, cache: PagedCache, vocabulary: int) -> None:
        """Take a loaded model; tokens from `vocabulary` on are never proposed."""
        self.runner = Runner(model, cache)
        self.context = model.config.context
        self.vocabulary = min(vocabulary, model.config.vocabulary)
        self.free = list(range(cache.blocks))

    def begin(self, request: Request) -> Draft:
        """Return what proposes the tokens of one answer."""
        return Draft(self, request)


class Draft:
    """Propose the tokens of one answer."""

    def __init__(self, shared: DraftModel, request: Request) -> None:
        self._shared, self._request = shared, request
        self.tokens: list[int] = []
        """The text, and what was proposed after it, as far as the smaller model has read it."""
        self._read = 0
        self._blocks: list[int] = []

    def table(self) -> list[int]:
        """Return its blocks in order."""
        return self._blocks

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Return at most `most` tokens; none where the text, or the cache, is too long for it."""
        if len(tokens) + most > self._shared.context or not self._grow(len(tokens) + most):
            return []
        same = min(self._read, len(tokens) - 1)
        while self.tokens[:same] != list(tokens[:same]):  # it had proposed something else
            same -= 1
        self.tokens, self._read = list(tokens), same
        for _ in range(most):
            self.tokens.append(self._next())
        return self.tokens[len(tokens) :]

    def end(self) -> None:
        """Give its blocks back."""
        self._shared.free += self._blocks
        self._blocks = []

    def _next(self) -> int:
        """Return the smaller model's choice, drawn with the chance of the answer's own."""
        work = Work(self, self._read, self.tokens[self._read :])
        logits = self._shared.runner.run([work]).logits[:, : self._shared.vocabulary]
        self._read = len(self.tokens)
        number = len(self.tokens) - len(self._request.prompt)
        (choice,) = choose(Scores.of(logits), [Row(self._request.sampling, number)])
        return 0 if choice is None else choice.token

    def _grow(self, length: int) -> bool:
        """Take blocks for a text of this length; return False if there are none."""
        missing = -(-length // BLOCK) - len(self._blocks)
        if missing > len(self._shared.free):
            return False
        self._blocks += [self._shared.free.pop() for _ in range(missing)]
        return True
