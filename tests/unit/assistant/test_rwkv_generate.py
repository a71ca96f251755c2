"""Generation of text: stop texts, cancellation, whole characters, sampling and checkpoints."""

from __future__ import annotations

import math
from itertools import islice
from random import Random
from typing import NamedTuple

import pytest
import torch

from accel.rwkv.model import RWKV7
from accel.rwkv.sampling import Sampler
from accel.rwkv.tokenizer import Tokenizer
from assistant.engine.checkpoint import SAVE_EVERY, FileCheckpoint, folder
from assistant.engine.engine import EngineAuthor, TextPosition
from assistant.engine.generate import Generation, prefill, prefill_or_restore
from assistant.engine.prompts import prompt
from assistant.idle import Cancelled
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # what Numba compiles at the first use is compiled once

torch.set_num_threads(1)
BYTES = Tokenizer({i + 1: bytes([i]) for i in range(256)})
"""A vocabulary whose token i + 1 is the byte i, so that a text can be cut anywhere."""


class Script(Sampler):
    """Choose the tokens of a given text, whatever the logits are."""

    def __init__(self, text: str | bytes, end: bool = False) -> None:
        super().__init__()
        self.tokens = iter([*BYTES.encode(text), *([0] if end else [])])

    def __call__(self, logits: torch.Tensor, number: int) -> int:
        return next(self.tokens)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> RWKV7:
    return RWKV7.load(
        write_hf(
            tmp_path_factory.mktemp("model"),
            to_hf(random_model(layers=1, channels=64, vocabulary=300)),
        )
    )


def generation(
    model: RWKV7, sampler: Sampler, limit: int = 1000, cancelled=lambda: False
) -> Generation:
    return Generation(model, BYTES, sampler, *model.forward([1]), limit=limit, cancelled=cancelled)


def test_the_prompt_has_the_format_the_models_were_trained_on() -> None:
    assert (
        prompt("Be\r\n\r\nbrief.", "One.\n\n\nUser: two. ")
        == "System: Be\nbrief.\n\nUser: One.\nUser: two.\n\nAssistant:"
    )


def test_it_stops_before_the_users_next_turn(model) -> None:
    run = generation(model, Script("All is well.\n\nUser: and"))
    pieces = list(run)
    assert "".join(pieces) == "All is well."
    assert run.reason == "stop"


def test_text_that_only_resembles_the_stop_text_is_yielded(model) -> None:
    run = generation(model, Script("a\n\nUs\n\nb\n", end=True))
    assert "".join(run) == "a\n\nUs\n\nb\n"
    assert run.reason == "end"


def test_characters_are_never_split(model) -> None:
    text = "71 °C — 中文 👩‍👩‍👧 ok"
    pieces = list(generation(model, Script(text, end=True)))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece and piece for piece in pieces)


def test_a_character_cut_off_at_the_limit_becomes_one_replacement_character(model) -> None:
    run = generation(model, Script("é" * 9), limit=3)
    assert "".join(run) == "é\ufffd"
    assert run.reason == "length"
    assert len(run.tokens) == 3


def test_it_is_cancelled_between_two_tokens_and_can_go_on_from_its_state(model) -> None:
    told: list[str] = []
    run = generation(model, Script("abcdefgh"), cancelled=lambda: len(told) == 3)
    told += (piece for piece in run)  # consumed lazily: the check sees three pieces
    told = []
    run = generation(model, Script("abcdefgh"), cancelled=lambda: len(told) == 3)
    for piece in run:
        told.append(piece)
    assert told == ["a", "b", "c"]
    assert run.reason == "cancelled"
    expected, _ = model.forward([7], model.forward([1, *BYTES.encode("abc")])[1])
    assert torch.allclose(model.forward([7], run.state)[0], expected, atol=1e-4)


def test_a_long_prompt_is_cancelled_between_two_chunks(model) -> None:
    asked: list[int] = []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Cancelled):
        prefill(model, [1] * (5 * model.chunk), None, cancelled)
    assert len(asked) == 3


def test_greedy_takes_the_largest_and_a_seed_repeats_its_tokens() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    assert Sampler()(logits, 0) == int(logits.argmax())
    one, two, other = (Sampler(temperature=1.5, seed=s) for s in (7, 7, 8))
    draws = [[sampler(logits, n) for n in range(50)] for sampler in (one, two, other)]
    assert draws[0] == draws[1] != draws[2]


def test_top_p_keeps_only_the_tokens_that_reach_it() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    sampler = Sampler(temperature=1.0, top_p=0.75, seed=3)
    assert {sampler(logits, n) for n in range(300)} == {0, 1}
    narrow = Sampler(temperature=1.0, top_p=1e-9)
    assert {narrow(logits, n) for n in range(50)} == {0}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_output_that_is_not_finite_is_an_error(temperature) -> None:
    with pytest.raises(ValueError, match="not finite"):
        Sampler(temperature)(torch.tensor([1.0, math.nan]), 0)


@pytest.mark.parametrize(
    "settings", [{"temperature": -1}, {"temperature": math.inf}, {"top_p": 0}, {"top_p": 1.1}]
)
def test_settings_out_of_range_are_refused(settings) -> None:
    with pytest.raises(ValueError, match=r"temperature|top_p"):
        Sampler(**settings)


class LoadedModel(NamedTuple):
    """Stand in for an `assistant.engine.engine.Engine`."""

    name: str
    model: RWKV7
    tokenizer: Tokenizer
    device: str = "cpu"
    by: str = "compiled"
    compact: bool = False

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


def written(place: TextPosition) -> list[int]:
    """Return all tokens since the prompt."""
    return [] if place.before is None else [*written(place.before), *place.tokens]


def test_an_author_goes_on_from_any_position_with_the_same_bits(model) -> None:
    author = EngineAuthor(LoadedModel("noise", model, BYTES), lambda: False)
    begin = author.begin("system", "user")
    way = list(islice(author.write(begin, 1), 40))
    assert author.tokens >= 40
    for place in (way[7], way[20], way[31]):
        memory, behind = place.nearest_state()
        assert memory is not None
        rest = [p.text for p in islice(author.write(place, 5), 20)]
        assert rest == [p.text for p in islice(author.write(place, 5), 20)]
        assert rest[0].startswith(place.text)
        state = memory.state
        for token in behind:
            _, state = model.forward([token], state)
        straight = begin.state.state
        for token in written(place):
            _, straight = model.forward([token], straight)
        assert torch.equal(state.wkv, straight.wkv), "as if nothing else had been written"


def write_all(model: RWKV7, checkpoint: FileCheckpoint, cut: int | None) -> str | None:
    """Return a text, or None if it was cut off before its token number `cut`."""
    left = cut

    def cancelled() -> bool:
        nonlocal left
        if left is not None:
            left -= 1
        return left == -1

    sampler = Sampler(1.0, 0.9, 11)
    run = Generation(
        model,
        BYTES,
        sampler,
        *prefill_or_restore(model, [1, 2, 3], checkpoint, lambda: False),
        limit=150,
        cancelled=cancelled,
        checkpoint=checkpoint,
    )
    text = "".join(run)
    return None if run.reason == "cancelled" else text


def test_a_text_is_the_same_however_often_the_process_ends_and_little_is_repeated(
    model, home, monkeypatch
) -> None:
    whole = write_all(model, FileCheckpoint("uninterrupted"), None)
    steps = 0

    def counted(self, tokens, state=None, look=lambda: None):
        nonlocal steps
        steps += len(tokens)
        return forward(self, tokens, state, look)

    forward = RWKV7.forward
    monkeypatch.setattr(RWKV7, "forward", counted)
    random, cuts, written, text = Random(5), 0, 0, None
    while text is None:
        checkpoint = FileCheckpoint("a")
        text = write_all(model, checkpoint, written + random.randrange(1, 40))
        checkpoint.close(done=False)
        written = (folder("a") / "tokens").stat().st_size // 4
        with (folder("a") / "tokens").open("ab") as torn:
            torn.write(b"\1\2")  # the last word was cut off
        cuts += 1
    assert cuts > 4
    assert text == whole
    assert steps < 3 + 150 + cuts * (SAVE_EVERY + 1)


def test_another_prompt_starts_again_and_a_finished_checkpoint_is_removed(model, home) -> None:
    checkpoint = FileCheckpoint("../../a")
    write_all(model, checkpoint, 20)
    checkpoint.begin([4, 5], model.identity)
    assert checkpoint.next_token() is None
    checkpoint.close(done=True)
    assert list((home / "unfinished").iterdir()) == []
