"""The order of the data is a function of seed and step, and documents stay apart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpudeck.accel.training.batches import Batches
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.loss import IGNORED
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shards import TokenData, prepare
from gpudeck.accel.training.tokenizers import ByteTokenizer

SETTINGS = Settings(tokens=8, batch=4, accumulate=2, held_out=0.2)


@pytest.fixture
def data(tmp_path: Path) -> TokenData:
    rows = "".join(f'{{"prompt": "{n}:", "answer": "{"x" * (n % 7 + 1)}"}}\n' for n in range(60))
    (tmp_path / "a.jsonl").write_text(rows)
    return prepare(
        tmp_path / "a.jsonl", ByteTokenizer(), tmp_path, skip_broken=False, report=lambda *_: None
    )


def test_a_pass_holds_each_window_once_and_none_that_is_held_out(data: TokenData) -> None:
    batches = Batches(data, SETTINGS)
    count = (len(data) - 1) // 8
    held = [row.tobytes() for one in batches.held_out() for row in one.tokens]
    steps = (batches.trained_tokens // 8) // 4
    trained = [row.tobytes() for step in range(steps) for row in batches.batch(step).tokens]
    every = [data.take(8 * i, 8).astype(np.int64) & 0x7FFFFFFF for i in range(count)]
    left = count - len(held) - len(trained)
    assert 0 <= left < 4
    assert len(held) == round(0.2 * count)
    rest = [row.tobytes() for row in batches.batch(steps).tokens[:left]]
    assert sorted([*held, *trained, *rest]) == sorted(row.tobytes() for row in every)


def test_a_batch_depends_on_seed_and_step_alone(data: TokenData) -> None:
    first, again = Batches(data, SETTINGS), Batches(data, SETTINGS)
    other = Batches(data, msgspec.structs.replace(SETTINGS, seed=1))
    for step in (0, 3, 50):  # in several passes
        assert np.array_equal(first.batch(step).tokens, again.batch(step).tokens)
    assert not np.array_equal(first.batch(0).tokens, other.batch(0).tokens)


def test_documents_fill_the_rows_and_prompts_are_not_learned(data: TokenData) -> None:
    batches = Batches(data, SETTINGS)
    batch = batches.batch(0)
    edges = np.cumsum(batch.lengths)
    assert edges[-1] == batch.tokens.size
    assert set(range(8, 33, 8)) <= set(edges.tolist()), "no document goes on in the next row"
    begins = [0, *edges[:-1]]
    flat = batch.tokens.flatten()
    within = [int(at) for at in np.flatnonzero(flat == 256)]
    assert {*within} <= {*begins}, "each document begins with the token that ends the last one"
    assert set(begins) == {*within, 0, 8, 16, 24}
    for target in batch.targets[batch.targets != IGNORED]:
        assert target in (ord("x"), 256)
    halves = batches.parts(batch)
    assert [sum(half.lengths) for half in halves] == [16, 16]
    assert sum(half.learned for half in halves) == batch.learned


def test_too_little_data_is_refused(data: TokenData) -> None:
    with pytest.raises(Refused, match="too few for sequences of 4096"):
        Batches(data, msgspec.structs.replace(SETTINGS, tokens=4096))
