"""The assistant's own model behind the scheduler: texts from any position, cancels, checkpoints."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from gpudeck.accel.rwkv.tokenizer import VOCABULARY
from gpudeck.accel.serving.request import Ended, Piece, Request, Sampling
from gpudeck.assistant.engine.author import EngineAuthor, TextPosition
from gpudeck.assistant.engine.checkpoint import FileCheckpoint, folder
from gpudeck.assistant.engine.engine import Engine
from gpudeck.assistant.engine.prompts import prompt
from gpudeck.assistant.idle import Cancelled
from tests.support import eventually
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # what Numba compiles at the first use is compiled once


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    """Return the folder of a random model whose tokens are bytes."""
    weights = to_hf(random_model(layers=1, channels=64, vocabulary=300))
    found = write_hf(tmp_path_factory.mktemp("model") / "noise-7", weights)
    (found / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    return found


@pytest.fixture
def engine(model_folder: Path) -> Iterator[Engine]:
    made = Engine(str(model_folder), "cpu")
    yield made
    made.retire()


def author(engine: Engine, checkpoint: FileCheckpoint | None = None) -> EngineAuthor:
    return EngineAuthor(engine, lambda: False, checkpoint)


def test_the_prompt_has_the_format_the_models_were_trained_on() -> None:
    assert (
        prompt("Be\r\n\r\nbrief.", "One.\n\n\nUser: two. ")
        == "System: Be\nbrief.\n\nUser: One.\nUser: two.\n\nAssistant:"
    )


def test_an_author_goes_on_from_any_position_with_the_same_bits(engine, model_folder) -> None:
    """With states that are kept, and in another process that has to read the text again."""
    writing = author(engine)
    begin = writing.begin("system", "user")
    way = list(islice(writing.write(begin, 1), 60))
    assert writing.tokens >= 60
    assert all(engine.decode(place.tokens) == place.text for place in way)
    sentences = [place for place in way if place.text.endswith((".", "!", "?", "\n"))]
    for place in (way[7], way[31], *sentences[:2]):
        rest = [p.tokens for p in islice(writing.write(place, 5), 20)]
        assert rest == [p.tokens for p in islice(writing.write(place, 5), 20)]
        assert rest[0][: len(place.tokens)] == place.tokens
        other = Engine(str(model_folder), "cpu")
        assert rest == [p.tokens for p in islice(author(other).write(place, 5), 20)]
        other.retire()


def test_a_sentence_is_gone_on_from_without_reading_the_text_again(engine) -> None:
    begin = TextPosition(tuple(range(3, 80)))
    text = engine.encode("It is so. And")
    engine.serving.scheduler._pool.evictions = 0
    asked = Request(
        (*begin.prompt, *text[:9]), 12, Sampling(temperature=0), marks=("",),
        written=(77, 86),
    )  # fmt: skip
    list(engine.answer(asked, lambda: False))
    (ended,) = (e for e in engine.answer(asked, lambda: False) if isinstance(e, Ended))
    assert ended.cached_tokens >= 84


def test_a_cancelled_answer_and_a_forgotten_one_end_within_a_step(engine) -> None:
    stop = threading.Event()
    asked = Request((5, 6), 10**6, Sampling(seed=3), ignore_end=True)
    running = engine.answer(asked, stop.is_set)
    assert isinstance(next(running), Piece)
    stop.set()
    with pytest.raises(Cancelled):
        list(running)
    forgotten = engine.answer(asked, lambda: False)
    next(forgotten)
    forgotten.close()
    eventually(lambda: engine.serving.statistics().running == 0)


def test_a_replaced_model_ends_with_its_last_request(model_folder) -> None:
    engine = Engine(str(model_folder), "cpu")
    engine.enter()
    engine.retire()
    (piece, *_) = engine.answer(Request((5,), 3, ignore_end=True), lambda: False)
    assert piece
    engine.leave()
    assert not any(thread.name == "serving" for thread in threading.enumerate())


def test_a_text_is_the_same_however_often_the_process_ends(engine, home) -> None:
    begin = author(engine).begin("", "x")
    whole = [place.text for place in author(engine).write(begin, 11)][-1]
    random, cuts, text, told = Random(5), 0, "", 0
    while text != whole:
        checkpoint = FileCheckpoint("a")
        places = author(engine, checkpoint).write(begin, 11)
        for place in places:
            text = place.text
            assert whole.startswith(text)
            if len(text) > told + random.randrange(5, 50):
                break
        told = len(text)
        places.close()
        checkpoint.close(done=False)
        with (folder("a") / "tokens").open("ab") as torn:
            torn.write(b"[12")  # the last line was cut off
        cuts += 1
    assert cuts > 4


def test_another_prompt_starts_again_and_a_finished_checkpoint_is_removed(home) -> None:
    checkpoint = FileCheckpoint("../../a")
    checkpoint.begin([1, 2], "m")
    checkpoint.add([7, 8])
    checkpoint.close(done=False)
    checkpoint = FileCheckpoint("../../a")
    checkpoint.begin([1, 2], "m")
    assert checkpoint.next_piece() == (7, 8) and checkpoint.next_piece() == ()
    checkpoint.close(done=False)
    checkpoint = FileCheckpoint("../../a")
    checkpoint.begin([1, 2], "another")
    assert checkpoint.next_piece() == ()
    assert list((home / "unfinished").iterdir()) == [folder("../../a")]
    checkpoint.close(done=True)
    assert list((home / "unfinished").iterdir()) == []
