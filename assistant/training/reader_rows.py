"""Examples as tensors, and batches of them, for the training of the reader of requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from gpudeck.assistant.reader.labels import PAGES
from gpudeck.assistant.training.reader_network import HEADS, MARKS, TAGS
from gpudeck.assistant.training.requests import Example
from gpudeck.language.languages import LANGUAGES

_HEAD = {name: i for i, name in enumerate(HEADS)}
_MARK = {name: i for i, name in enumerate(MARKS)}
_TAG = {name: i for i, name in enumerate(TAGS)}
_PAGE = {name: i for i, name in enumerate(PAGES)}
_LANGUAGE: dict[str, int] = {name: i for i, name in enumerate(LANGUAGES)}
WIDTHS = (16, 24, 32, 48, 96)
"""How wide batches are; a request has at most so many pieces with what was meant before it."""
_LONGEST = WIDTHS[-1]
PADDING = 1
NONE = -100
"""The class of what no head is asked about."""


class Rows(NamedTuple):
    """Hold examples as tensors of the same first dimension."""

    ids: Tensor
    """[N, T] pieces."""
    lengths: Tensor
    tag: Tensor
    """[N, T]; NONE where a piece is no part of the request."""
    head: Tensor
    second: Tensor
    """The head of a second meaning; the last class: there is none."""
    mark: Tensor
    """[N, M], 0 or 1."""
    page: Tensor
    language: Tensor

    def at(self, places: Tensor, width: int = 0) -> Rows:
        """Return some rows of a width, which without one is that of the longest of them."""
        found = Rows(*(one[places] for one in self))
        width = width or int(found.lengths.max())
        return found._replace(ids=found.ids[:, :width], tag=found.tag[:, :width])

    def parts(self, size: int) -> Iterator[Rows]:
        """Yield the rows in their order, so many at a time."""
        everything = torch.arange(len(self.ids), device=self.ids.device)
        for first in range(0, len(everything), size):
            yield self.at(everything[first : first + size])

    def mask(self) -> Tensor:
        """Return where pieces are: [N, T]."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]

    def to(self, device: torch.device) -> Rows:
        """Return the rows on a device."""
        return Rows(*(one.to(device) for one in self))


def rows(found: Sequence[Example], tokenizer: Tokenizer) -> Rows:
    """Return examples as tensors."""
    count = len(found)
    ids = torch.full((count, _LONGEST), PADDING)
    tags = torch.full((count, _LONGEST), NONE)
    marked = torch.zeros(count, len(MARKS))
    starts = [f"query: {one.before} | " if one.before else "query: " for one in found]
    texts = [start + one.text for start, one in zip(starts, found, strict=True)]
    lengths = torch.zeros(count, dtype=torch.long)
    for row, encoded in enumerate(tokenizer.encode_batch(texts)):
        one, places = found[row], encoded.offsets[:_LONGEST]
        lengths[row] = len(places)
        ids[row, : len(places)] = torch.tensor(encoded.ids[:_LONGEST])
        tags[row, : len(places)] = torch.tensor(_tags(one, places, len(starts[row])))
        marked[row, [_MARK[mark] for mark in one.marks if mark in _MARK]] = 1
    return Rows(
        ids, lengths, tags, torch.tensor([_HEAD[one.heads[0]] for one in found]),
        torch.tensor([_HEAD[one.heads[1]] if len(one.heads) > 1 else len(HEADS) for one in found]),
        marked, torch.tensor([_PAGE[one.page] if one.page else NONE for one in found]),
        torch.tensor([_LANGUAGE[one.language] for one in found]),
    )  # fmt: skip


def _tags(one: Example, places: Sequence[tuple[int, int]], start: int) -> list[int]:
    tags = [NONE if last <= start else 0 for _, last in places]
    for field, first, last in one.spans:
        inside = [i for i, (a, b) in enumerate(places)
                  if b > start + first and a < start + last and b > a]  # fmt: skip
        for n, i in enumerate(inside):
            if tags[i] == 0:
                tags[i] = _TAG[f"{'I' if n else 'B'}-{field}"]
    return tags


def batches(found: Rows, size: int, seed: int) -> Iterator[Rows]:
    """Yield batches of one size and of few widths in random order, so that steps can be recorded.

    The last batch of a width is filled up with rows of its own width.
    """
    chance = torch.Generator().manual_seed(seed)
    lengths = found.lengths.cpu()
    made = []
    for narrow, width in pairwise((0, *WIDTHS)):
        fitting = ((lengths > narrow) & (lengths <= width)).nonzero().flatten()
        count = math.ceil(len(fitting) / size)
        mixed = fitting[torch.randperm(len(fitting), generator=chance)]
        mixed = mixed.repeat(math.ceil(count * size / max(len(mixed), 1)))[: count * size]
        made += [(width, mixed[i * size : (i + 1) * size]) for i in range(count)]
    for i in torch.randperm(len(made), generator=chance).tolist():
        width, part = made[i]
        yield found.at(part.to(found.ids.device), width)
