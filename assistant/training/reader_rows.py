"""Examples as numbers, and batches of them, for the training of the reader of requests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from gpudeck.assistant.reader.labels import PAGES
from gpudeck.assistant.training.reader_network import HEADS, MARKS, TAGS, Reader
from gpudeck.assistant.training.requests import Example

_HEAD = {name: i for i, name in enumerate(HEADS)}
_MARK = {name: i for i, name in enumerate(MARKS)}
_TAG = {name: i for i, name in enumerate(TAGS)}
_PAGE = {name: i for i, name in enumerate(PAGES)}


class Row(NamedTuple):
    """Hold one example as numbers."""

    ids: list[int]
    states: Tensor
    """What the layers that stay as they are make of it, in half precision: [T, 384]."""
    tags: list[int]
    """-100 where a piece is no part of the request."""
    head: int
    second: int
    """The head of a second meaning; the last class: there is none."""
    marks: list[int]
    page: int


def rows(found: Sequence[Example], tokenizer: Tokenizer, model: Reader) -> list[Row]:
    """Return examples as numbers."""
    made, model = [], model.eval()
    for one in found:
        before = f"query: {one.before} | " if one.before else "query: "
        text = before + one.text
        encoded = tokenizer.encode(text)
        ids, places = encoded.ids[:128], encoded.offsets[:128]
        tags = [-100 if b <= len(before) else 0 for a, b in places]
        for field, first, last in one.spans:
            inside = [i for i, (a, b) in enumerate(places)
                      if b > len(before) + first and a < len(before) + last and b > a]  # fmt: skip
            for n, i in enumerate(inside):
                if tags[i] == 0:
                    tags[i] = _TAG[f"{'I' if n else 'B'}-{field}"]
        second = _HEAD[one.heads[1]] if len(one.heads) > 1 else len(HEADS)
        known = [_MARK[mark] for mark in one.marks if mark in _MARK]
        page = _PAGE[one.page] if one.page else -100
        none = torch.zeros(0, 384)
        made.append(Row(ids, none, tags, _HEAD[one.heads[0]], second, known, page))
    done: list[Row] = []
    for batch in batches(made, 64, 0):
        wanted = tensors(batch)
        with torch.autocast("cpu", torch.bfloat16):
            states = model.lower(wanted["ids"], wanted["mask"]).half()
        done += [row._replace(states=states[i, : len(row.ids)].clone())
                 for i, row in enumerate(batch)]  # fmt: skip
    model.train()
    return done


def batches(found: Sequence[Row], size: int, seed: int) -> Iterator[list[Row]]:
    """Yield batches of rows of similar lengths, in random order."""
    order = list(range(len(found)))
    chance = random.Random(seed)
    chance.shuffle(order)
    order = sorted(order, key=lambda i: len(found[i].ids) + chance.random() * 6)
    parts = [order[i : i + size] for i in range(0, len(order), size)]
    chance.shuffle(parts)
    for part in parts:
        yield [found[i] for i in part]


def tensors(batch: Sequence[Row]) -> dict[str, Tensor]:
    """Return a batch as tensors."""
    longest = max(len(row.ids) for row in batch)
    ids = torch.ones(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.bool)
    tags = torch.full((len(batch), longest), -100)
    wanted = torch.zeros(len(batch), len(MARKS))
    states = torch.zeros(len(batch), longest, 384)
    for i, row in enumerate(batch):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = True
        tags[i, : len(row.tags)] = torch.tensor(row.tags)
        states[i, : len(row.states)] = row.states
        wanted[i, row.marks] = 1
    return {
        "ids": ids, "mask": mask, "tag": tags, "mark": wanted, "states": states,
        "head": torch.tensor([row.head for row in batch]),
        "second": torch.tensor([row.second for row in batch]),
        "page": torch.tensor([row.page for row in batch]),
    }  # fmt: skip
