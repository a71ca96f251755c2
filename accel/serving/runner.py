"""Run the model on the work of a step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from accel.serving.cache import BLOCK, PagedCache
from accel.serving.scheduler import Work
from accel.serving.transformer import Batch, Transformer


class Runner:
    """Arrange the tokens of a step as a batch, and compute its logits."""

    def __init__(self, model: Transformer, cache: PagedCache) -> None:
        self._model, self._cache = model, cache

    @torch.inference_mode()
    def run(self, work: Sequence[Work]) -> Tensor:
        """Store the keys and values of all tokens.

        Returns:
            Logits [n, V] in fp32 on the model's device: for each work that chooses, after its last
            token and, before that, each token that is followed by a proposal.
        """
        return self._model.forward(self._batch(work), self._cache)

    def _batch(self, work: Sequence[Work]) -> Batch:
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
            max(positions) + 1,
        )
