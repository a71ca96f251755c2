"""Run the model on the work of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gpudeck.accel.runtime.graphs import Replay
from gpudeck.accel.serving.batch import FEW_QUERIES, Batch
from gpudeck.accel.serving.cache import PagedCache
from gpudeck.accel.serving.memory import BLOCK
from gpudeck.accel.serving.sampler import Scores
from gpudeck.accel.serving.scheduler import Text, Work
from gpudeck.accel.serving.transformer import Transformer

GRAPHS = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
"""Numbers of tokens that a step is captured for; it is filled up to the next one."""
_HEAD = 4
"""Numbers of a captured step's input for each token before the tables begin: token, position, slot,
and one that keeps the tables aligned."""


class Runner:
    """Arrange the tokens of a step as a batch, and compute its logits.

    On a GPU, steps in which only answers grow are captured as CUDA graphs, each at its first use.
    In a graph every token is a sequence of its own, so that proposals need no other graph.
    """

    together = True
    """All work of a step is computed at once."""

    def __init__(self, model: Transformer, cache: PagedCache) -> None:
        self._model, self._cache = model, cache
        # The choice of experts is read back in a step, which a graph cannot do.
        dense = not any(model.config.experts)
        self._captures = model.device.type == "cuda" and dense
        self._graphs: dict[int, Replay[Scores]] = {}
        self._width = min(cache.blocks, -(-model.config.context // BLOCK))
        self._every = torch.arange(GRAPHS[-1], device=model.device, dtype=torch.int32)

    @torch.inference_mode()
    def run(self, work: Sequence[Work[Text]]) -> Scores:
        """Store the keys and values of all tokens.

        Returns:
            The scores, for each work that chooses, after its last token and, before that, each
            token that is followed by a proposal.
        """
        count = sum(len(item.tokens) for item in work)
        short = all(len(item.tokens) <= FEW_QUERIES for item in work)
        if self._captures and short and count <= GRAPHS[-1]:
            return self._replay(work, count)
        return Scores.of(self._model.forward(self._batch(work), self._cache))

    def _replay(self, work: Sequence[Work[Text]], count: int) -> Scores:
        """Return the scores by the graph for this many tokens."""
        size = next(size for size in GRAPHS if size >= count)
        numbers = np.zeros(size * (_HEAD + self._width), dtype=np.int32)
        head, tables = numbers[: _HEAD * size].reshape(_HEAD, size), numbers[_HEAD * size :]
        tables = tables.reshape(size, self._width)
        head[2, count:] = self._cache.filler
        wanted: list[int] = []
        line = 0
        for item in work:
            table = item.sequence.table()
            end = line + len(item.tokens)
            wanted += range(end - item.drafts - 1 if item.chooses else end, end)
            tables[line:end, : len(table)] = table
            for at, token in enumerate(item.tokens, item.start):
                head[:3, line] = token, at, table[at // BLOCK] * BLOCK + at % BLOCK
                line += 1
        packed = torch.from_numpy(numbers)
        if size not in self._graphs:
            self._graphs[size] = Replay(self._forward, packed.to(self._model.device))
        graph = self._graphs[size]
        graph.inputs[0].copy_(packed)
        scores = graph(graph.inputs[0])
        return scores[: len(wanted)] if wanted == list(range(len(wanted))) else scores[wanted]

    def _forward(self, packed: Tensor) -> Scores:
        """Return the scores after tokens that are each the last of a sequence."""
        count = len(packed) // (_HEAD + self._width)
        tokens, positions, slots, _ = packed[: _HEAD * count].view(_HEAD, count)
        tables, every = packed[_HEAD * count :].view(count, self._width), self._every[:count]
        batch = Batch(tokens, positions, slots, every, tables, every, ((1, 1),) * count)
        return Scores.of(self._model.forward(batch, self._cache))

    def _batch(self, work: Sequence[Work[Text]]) -> Batch:
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        wanted: list[int] = []
        tables = [item.sequence.table() for item in work]
        for row, (item, table) in enumerate(zip(work, tables, strict=True)):
            end = item.start + len(item.tokens)
            if item.chooses:
                last = len(tokens) + len(item.tokens)
                wanted += range(last - item.drafts - 1, last)
            tokens += item.tokens
            positions += range(item.start, end)
            slots += [table[at // BLOCK] * BLOCK + at % BLOCK for at in range(item.start, end)]
            rows += [row] * len(item.tokens)
        width = max(map(len, tables))
        padded = [table + [0] * (width - len(table)) for table in tables]
        device = self._model.device

        def on_device(values: object, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

        return Batch(
            on_device(tokens),
            on_device(positions),
            on_device(slots),
            on_device(rows, torch.int32),
            on_device(padded, torch.int32),
            on_device(wanted),
            tuple((len(item.tokens), item.start + len(item.tokens)) for item in work),
        )
