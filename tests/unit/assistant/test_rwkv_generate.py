"""Text token by token: stops, cancelling, whole characters; choosing tokens."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import pytest
import torch
from rwkv_models import random_model, to_hf, write_hf

from assistant.engine import EngineAuthor
from assistant.generate import Generation, prompt, read
from assistant.idle import Cancelled
from assistant.model import RWKV7
from assistant.sampling import Sampler
from assistant.tokenizer import Tokenizer

torch.set_num_threads(1)
BYTES = Tokenizer({i + 1: bytes([i]) for i in range(256)})
"""Token i + 1 is the byte i: every text, cut anywhere."""


class Script(Sampler):
    """Chooses the tokens of a given text, whatever the logits are."""

    def __init__(self, text: str | bytes, end: bool = False) -> None:
        super().__init__()
        self.tokens = iter([*BYTES.encode(text), *([0] if end else [])])

    def __call__(self, logits: torch.Tensor, number: int) -> int:
        return next(self.tokens)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> RWKV7:
    return RWKV7.load(write_hf(tmp_path_factory.mktemp("model"), to_hf(random_model(layers=1, channels=64, vocabulary=300))))


def generation(model: RWKV7, sampler: Sampler, limit: int = 1000, cancelled=lambda: False) -> Generation:
    return Generation(model, BYTES, sampler, *model.forward([1]), limit=limit, cancelled=cancelled)


def test_the_prompt_has_the_format_the_models_were_trained_on() -> None:
    assert prompt("Be\r\n\r\nbrief.", "One.\n\n\nUser: two. ") == "System: Be\nbrief.\n\nUser: One.\nUser: two.\n\nAssistant:"


def test_it_stops_before_the_users_next_turn_and_holds_back_its_beginning(model) -> None:
    run = generation(model, Script("All is well.\n\nUser: and"))
    pieces = list(run)
    assert "".join(pieces) == "All is well."
    assert run.reason == "stop"


def test_what_only_looked_like_the_stop_is_told(model) -> None:
    run = generation(model, Script("a\n\nUs\n\nb\n", end=True))
    assert "".join(run) == "a\n\nUs\n\nb\n"
    assert run.reason == "end"


def test_characters_are_never_split(model) -> None:
    text = "71 °C — 中文 👩‍👩‍👧 ok"
    pieces = list(generation(model, Script(text, end=True)))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece and piece for piece in pieces)


def test_a_character_cut_off_at_the_limit_shows_as_one_replacement(model) -> None:
    run = generation(model, Script("é" * 9), limit=3)
    assert "".join(run) == "é\ufffd"
    assert run.reason == "length"
    assert len(run.tokens) == 3


def test_it_is_cancelled_between_two_tokens_and_its_state_goes_on_from_there(model) -> None:
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
        read(model, [1] * (5 * model.chunk), None, cancelled)
    assert len(asked) == 3


def test_greedy_takes_the_largest_and_the_same_seed_the_same_tokens() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    assert Sampler()(logits, 0) == int(logits.argmax())
    one, two, other = (Sampler(temperature=1.5, seed=s) for s in (7, 7, 8))
    draws = [[sampler(logits, n) for n in range(50)] for sampler in (one, two, other)]
    assert draws[0] == draws[1] != draws[2]


def test_top_p_keeps_just_the_tokens_that_reach_it() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))
    sampler = Sampler(temperature=1.0, top_p=0.75, seed=3)
    assert {sampler(logits, n) for n in range(300)} == {0, 1}
    narrow = Sampler(temperature=1.0, top_p=1e-9)
    assert {narrow(logits, n) for n in range(50)} == {0}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_computes_no_numbers_is_an_error_not_a_token(temperature) -> None:
    with pytest.raises(ValueError, match="not finite"):
        Sampler(temperature)(torch.tensor([1.0, math.nan]), 0)


@pytest.mark.parametrize("settings", [{"temperature": -1}, {"temperature": math.inf}, {"top_p": 0}, {"top_p": 1.1}])
def test_settings_out_of_range_are_refused(settings) -> None:
    with pytest.raises(ValueError, match=r"temperature|top_p"):
        Sampler(**settings)


class Told(NamedTuple):
    """As much of an `assistant.engine.Engine` as an author uses."""

    name: str
    model: RWKV7
    tokenizer: Tokenizer
    device: str = "cpu"


def test_an_author_goes_back_to_where_a_sentence_ended_with_the_same_bits(model) -> None:
    author = EngineAuthor(Told("noise", model, BYTES), lambda: False)
    author.begin("system", "user")
    text, number = "", 0
    while not re.search(r"[.!?].", text, re.DOTALL):  # noise: most seeds write no end of a sentence
        number += 1
        author.back(0)
        text = "".join(author.attempt(number))
    end = re.search(r"[.!?]", text).end()
    assert author.back(end) == end
    assert author.back(10_000) == end, "what was written after it is forgotten"
    again = ["".join(author.attempt(9)) for _ in range(2) if author.back(end) == end]
    assert again[0] == again[1]
    assert author.back(end - 1) == 0
