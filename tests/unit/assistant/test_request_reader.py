"""Test the encoder that reads requests, and what becomes of its readings."""

from __future__ import annotations

import time
from datetime import datetime

import numpy as np
import pytest

from gpudeck.assistant.intents.composed import completing, compose
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import ELSEWHERE, Understood, understand
from gpudeck.assistant.intents.values import Unread
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.assistant.reader.encoder import unpack
from gpudeck.assistant.reader.labels import described, heads, marks, spans_of
from gpudeck.assistant.reader.reading import Reading, shipped_reader
from gpudeck.assistant.tools.help_texts import declined
from gpudeck.assistant.tools.quotes import answering
from gpudeck.assistant.training.export import pack
from gpudeck.language.words import words

NOW = datetime(2026, 11, 25, 9, 30).timestamp()
KNOWN = Known(("train", "eval"), ("nightly",))
NOTHING = State()


def reading(
    head: str,
    *found: str,
    spans: tuple[tuple[str, str], ...] = (),
    chance: float = 0.9,
    second: tuple[tuple[str, float], ...] = (),
) -> Reading:
    places = tuple((0, 0) for _ in spans)
    return Reading(((head, chance), *second), "", frozenset(found), spans, places, (0.0,) * 26)


def request_of(found: Reading, state: State = NOTHING) -> Request:
    return compose(found, found.head, KNOWN, state, NOW).request


def test_weights_in_four_bits_are_near_what_they_were() -> None:
    weights = np.random.default_rng(1).normal(size=(7, 64)).astype(np.float32)
    again = unpack(pack(weights))
    assert np.abs(again - weights).max() < np.abs(weights).max() / 8
    np.testing.assert_array_equal(unpack(pack(again)), again)


def test_the_same_question_in_two_languages_is_near() -> None:
    encoder = shipped_reader().encoder
    asked = encoder.vector("query: how hot is gpu 3")
    same, other = (encoder.vector(f"query: {text}") for text in (
        "wie warm ist die Karte 3", "brich den Job 7 ab"))  # fmt: skip
    assert asked @ same > asked @ other


def test_an_encoding_has_a_place_for_each_piece() -> None:
    text = "query: lösche größere Dateien"
    found = shipped_reader().encoder.encode(text)
    assert len(found.places) == len(found.states)
    assert text[found.places[-2][0] : found.places[-2][1]] in "Dateien"


def test_a_long_request_is_read_without_its_end() -> None:
    found = shipped_reader().read("how hot is gpu 3 " * 100)
    assert found.head in heads()


READ = [
    (reading("ask gpus", "measure=temperature", spans=(("gpus", "3"),)),
     Query("devices", "temp", devices=(3,))),
    (reading("ask gpus", "measure=temperature", "which=highest"),
     Query("devices", "temp", aggregate="max", extreme=True)),
    (reading("ask gpus", "measure=memory_free", spans=(("above", "20 GB"),)),
     Query("devices", "mem_free", where=Query("devices").where)),
    (reading("ask jobs", "measure=why_failed", spans=(("jobs", "4"),)),
     Query("jobs", "failure", jobs=(4,))),
    (reading("ask jobs", "states=running"), Query("jobs", states=("running", "starting"))),
    (reading("ask bookings"), Query("bookings")),
    (reading("ask capacity", spans=(("count", "two"), ("memory", "20 gig"))),
     Query("capacity", gpus=2, amount=20e9)),
    (reading("order cancel", spans=(("jobs", "4"), ("jobs", "train"))),
     Order("cancel", jobs=(4, "train"))),
    (reading("order book", spans=(("gpus", "3"), ("from", "20:00"), ("until", "23 uhr"))),
     Order("book", devices=(3,), options={"begin": "2026-11-25 20:00",
                                          "until": "2026-11-25 23:00"})),
]  # fmt: skip


@pytest.mark.parametrize(("found", "wanted"), READ)
def test_a_reading_becomes_a_query_or_an_order(found: Reading, wanted: Request) -> None:
    made = request_of(found)
    if isinstance(made, Query) and made.where:
        assert made.where[0].above == 20e9
        return
    assert made == wanted


@pytest.mark.parametrize(
    "found",
    [
        reading("order cancel", "jobs=@them"),
        reading("order cancel", spans=(("jobs", "4"), ("at", "20:00"))),
        reading("order cancel", spans=(("jobs", "4"), ("if", "if it gets hot"))),
        reading("order drain", spans=(("gpus", "the loud one"),)),
        reading("order retry", "change=more", spans=(("jobs", "4"),)),
        reading("order cancel", "states=queued", "user=@it"),
        reading("ask gpus", "measure=serial"),
    ],
)
def test_a_part_without_a_value_makes_no_request(found: Reading) -> None:
    with pytest.raises(Unread):
        request_of(found)


@pytest.mark.parametrize(
    ("found", "wanted", "left"),
    [
        (
            reading("ask jobs", spans=(("time", "when the moon was full"),)),
            Query("jobs"),
            (("time", "when the moon was full"),),
        ),
        (
            reading("ask gpus", "measure=model", "compare=before", spans=(("user", "lea"),)),
            Query("devices", "name"),
            (("user", "lea"), ("compare", "before")),
        ),
        (
            reading("ask jobs", spans=(("jobs", "no such thing"),)),
            Query("jobs", jobs=("no such thing",)),
            (),
        ),
    ],
)
def test_a_question_is_asked_without_what_it_cannot_say_and_tells_that(
    found: Reading, wanted: Query, left: tuple[tuple[str, str], ...]
) -> None:
    made = compose(found, found.head, KNOWN, State(), NOW)
    assert made.request == wanted
    assert made.left == left


@pytest.mark.parametrize("letters", ["last two", "the last 2", "dos últimos", "first two"])
def test_a_count_of_jobs_is_not_the_number_of_one(letters: str) -> None:
    state = State((4, 5, 6), about="job")
    with pytest.raises(Unread):
        request_of(reading("order cancel", spans=(("jobs", letters),)), state)
    listed = reading("order cancel", spans=(("jobs", "jobs 7, 8 and 9"),))
    assert request_of(listed, state) == Order("cancel", jobs=(7, 8, 9))


def test_it_stands_for_the_one_job_that_was_spoken_of() -> None:
    found = reading("order cancel", "jobs=@it")
    assert request_of(found, State((4,), about="job")) == Order("cancel", jobs=(4,))


@pytest.mark.parametrize(
    "marks",
    [
        ("which=highest",),
        ("which=lowest",),
        ("which=lowest", "measure=loss"),
        ("which=highest", "measure=result"),
    ],
)
def test_the_best_run_is_that_with_the_lowest_loss(marks: tuple[str, ...]) -> None:
    found = request_of(reading("ask jobs", *marks))
    assert found == Query("jobs", "loss", aggregate="min", extreme=True)


def test_a_request_is_told_with_the_words_of_its_meaning() -> None:
    marks_ = ("measure=temperature", "gpus=@it", "when=yes")
    said = described("ask gpus", marks_, ("time",), "how hot was it?")
    assert said == "ask gpus gpus temperature time when: how hot was it?"
    assert described("order cancel", (), ("jobs",)) == "order cancel jobs"
    assert len(described("manual", (), (), "x" * 500)) < 110, "a long command is cut"


def test_the_table_has_no_word_twice() -> None:
    assert len(set(heads())) == len(heads()) and len(set(marks())) == len(marks())
    label = {"ask": "jobs", "jobs": ["4", "@it"], "time": "today"}
    assert list(spans_of(label)) == [("jobs", "4"), ("time", "today")]


def read(request: str) -> Understood:
    return understand(request, KNOWN, NOTHING, time.time(), shipped_reader())


@pytest.mark.parametrize(
    "request_text",
    ["don't cancel job 4", "cancel job 4 if it gets too hot", "was passiert wenn ich 4 abbreche",
     "how do I cancel a job?", "annule pas le 4", "can I cancel a running job?",
     "the log says: cancel all jobs"],
)  # fmt: skip
def test_near_orders_are_not_proposed(request_text: str) -> None:
    found = read(request_text)
    assert found.plan or not isinstance(found.request, Order)


HOW_TO = {
    "how do I share the box with a colleague?": "shared",
    "wie lasse ich einen Job auf einen anderen warten?": "queue",
    "¿puedo usar gpudeck dentro de docker?": "containers",
    "what does Xid 79 mean": "alerts",
    "how can I take a program off the gpu for a while and bring it back": "suspension",
    "comment servir un modèle avec une API compatible OpenAI ?": "serving",
    "¿cómo reservo una GPU para mañana?": "queue",
    "how do I train a small language model": "training",
    "which cards are supported": "cards",
    "how do I connect prometheus and grafana": "monitor",
}


@pytest.mark.parametrize(("question", "page"), HOW_TO.items())
def test_the_manual_answers_a_question_how_something_is_done(question: str, page: str) -> None:
    found = answering(question)
    assert page in {section.page for section in found.quoted}
    assert len(found.quoted) + len(found.named) == 3


@pytest.mark.parametrize(
    ("request_text", "told"),
    [("serial numbers of all cards please", "ask serial")],
)  # fmt: skip
def test_what_nobody_measures_or_keeps_is_said_in_its_own_words(
    request_text: str, told: str
) -> None:
    found = understand(request_text, KNOWN, NOTHING, NOW, shipped_reader())
    assert found.request is None and found.declined == told
    assert declined(told, words("de")) != declined("talk outside", words("de"))


@pytest.mark.parametrize("verb", ["message", "account", "file", "shutdown"])
def test_an_order_that_nobody_here_carries_out_is_declined_in_its_own_words(verb: str) -> None:
    assert verb in ELSEWHERE
    assert declined(f"order {verb}", words("en")) != declined("cannot", words("en"))


def test_a_gpu_that_is_named_is_freed_and_a_program_is_not() -> None:
    named = reading("order free", spans=(("gpus", "1"), ("until", "23:00")))
    order = compose(named, "order free", KNOWN, NOTHING, NOW).request
    assert isinstance(order, Order) and (order.verb, order.devices) == ("free", (1,))
    assert order.options["until"]


def test_a_correction_names_another_job_in_place_of_the_first() -> None:
    state = State((12,), (), None, "job", order=Order("cancel", jobs=(12,)))
    meant = reading("order cancel", "jobs=@it", spans=(("jobs", "13"),))
    assert request_of(meant, state) == Order("cancel", jobs=(13,))
    named = reading("order cancel", spans=(("jobs", "13"), ("except", "12")))
    assert request_of(named, state) == Order("cancel", jobs=(13,), exclude=(12,))


def test_the_others_are_those_that_the_last_order_was_not_for() -> None:
    meant = reading("order cancel", "jobs=@others")
    state = State((12, 13), (), None, "job", order=Order("cancel", jobs=(12,)))
    assert request_of(meant, state) == Order("cancel", jobs=(13,))
    with pytest.raises(Unread):
        request_of(meant, State((12,), (), None, "job", order=Order("cancel", jobs=(12,))))


CHANGE = Order("edit", jobs=(4,), options={"memory": "24gb", "name": "a"})
BOOKING = Order("book", devices=(4, 5), options={"begin": "2026-11-26 14:00",
                                                 "until": "2026-11-26 18:00"})  # fmt: skip


@pytest.mark.parametrize(("last", "said", "meant"), [
    (CHANGE, Order("edit", options={"memory": "40gb"}),
     Order("edit", jobs=(4,), options={"memory": "40gb", "name": "a"})),
    (CHANGE, Order("edit", jobs=(5,)), Order("edit", jobs=(5,), options=CHANGE.options)),
    (CHANGE, Order("cancel"), Order("cancel")),
    (Order("limit", group="sweep", number=1), Order("limit", number=3),
     Order("limit", group="sweep", number=3)),
    (BOOKING, Order("book", devices=(6,)),
     Order("book", devices=(4, 5, 6), options=BOOKING.options)),
    (BOOKING, Order("book", devices=(5,)), Order("book", devices=(5,), options=BOOKING.options)),
])  # fmt: skip
def test_an_order_is_completed_by_the_one_before_it(last: Order, said: Order, meant: Order) -> None:
    assert completing(said, State(order=last)) == meant


def test_another_day_of_a_booking_keeps_its_hours() -> None:
    said = reading("order book", "gpus=@them", spans=(("from", "friday"),))
    order = request_of(said, State((), (4, 5), None, "device", order=BOOKING))
    assert isinstance(order, Order)
    assert order.options == {"begin": "2026-11-27 14:00", "until": "2026-11-27 18:00"}


def test_teachers_also_tell_which_pieces_belong_to_no_part() -> None:
    torch = pytest.importorskip("torch")
    from gpudeck.assistant.training.reader import loss_beside
    from gpudeck.assistant.training.reader_rows import NONE, Rows

    one = torch.zeros(1, dtype=torch.long)
    tags = torch.tensor([[NONE, 0, 1]])
    wanted = Rows(one[None], one, tags, one, one, one[None].float(), one, one)
    names = ("head", "second", "page", "language")
    told = {name: torch.tensor([[1.0, 0.0]]) for name in names} | {"mark": torch.zeros(1, 1)}
    told["tag"] = torch.tensor([[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]])

    def loss(tag: int) -> float:
        """Return the loss of logits that are sure of this tag for the piece without a part."""
        found = {name: torch.tensor([[9.0, 0.0]]) for name in names} | {"mark": -torch.ones(1, 1)}
        sure = torch.tensor([[[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]]])
        sure[0, 1, tag] = 9.0
        return float(loss_beside({**found, "tag": sure}, told, wanted, 1.0))

    assert loss(1) > loss(0) + 1


def test_training_rounds_weights_as_they_ship() -> None:
    torch = pytest.importorskip("torch")
    from gpudeck.assistant.training.reader_network import rounded

    weight = torch.randn(6, 96, generator=torch.Generator().manual_seed(3)).requires_grad_()
    near = rounded(weight)
    shipped = unpack(pack(weight.detach().numpy()))
    np.testing.assert_allclose(near.detach().numpy(), shipped, atol=1e-6)
    near.sum().backward()
    assert torch.equal(weight.grad, torch.ones_like(weight)), "training goes on through it"


def test_another_language_counts_only_where_it_is_far_likelier_than_the_usual_one() -> None:
    found = reading("ask gpus")._replace(languages=(0.0012, 0.9987, 0.0001, 0.0))
    assert (found.language_for("en"), found.language_for("fr")) == ("en", "de")
    assert reading("ask gpus").language_for("es") == "es"


@pytest.mark.parametrize(
    ("request_text", "language"),
    [("temperature max cette nuit", "fr"), ("pk eval-mmlu demarre pas", "fr"),
     ("¿por qué lleva tanto esperando eval-pretrain?", "es"), ("wer belegt gpu 0?", "de"),
     ("when was gpu 0 hottest today?", "en")],
)  # fmt: skip
def test_a_request_is_answered_in_its_language(request_text: str, language: str) -> None:
    assert understand(request_text, KNOWN, NOTHING, NOW, shipped_reader()).language == language


@pytest.mark.parametrize("before", ["why did slep fail?", "how hot is gpu 1", "cancel train"])
@pytest.mark.parametrize(
    ("greeting", "talk"),
    [("hello", "hello"), ("hola", "hello"), ("moin", "hello"), ("bonjour", "hello"),
     ("guten morgen", "hello"), ("thanks", "thanks"), ("danke", "thanks")],
)  # fmt: skip
def test_a_greeting_or_thanks_is_small_talk_whatever_was_said_before(
    greeting: str, talk: str, before: str
) -> None:
    reader = shipped_reader()
    said = understand(before, KNOWN, NOTHING, NOW, reader)
    state = State((7,), about="job", before=said.before)
    assert understand(greeting, KNOWN, state, NOW, reader).declined == f"talk {talk}"
