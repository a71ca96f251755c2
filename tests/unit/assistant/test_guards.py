"""An order that was read is refused for words without a place, and where it is not sure for those
that forbid, limit or delay it."""

from __future__ import annotations

from datetime import datetime

import pytest

from gpudeck.assistant.intents.guards import against, is_supposed
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.spans import completed
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.reader.reading import Loose, Reading

NOW = datetime(2026, 11, 23, 15, 20).timestamp()
KNOWN = Known(("train", "bench"), ("sweep",))


def reading(request: str, *spans: tuple[str, str], plain: float = 0.5, unsure: str = "") -> Reading:
    """Return a reading of an order, of which it is as sure as `plain`, with one word or none that
    it is not sure to be filler."""
    places = tuple((request.index(text), request.index(text) + len(text)) for _, text in spans)
    at = request.index(unsure)
    loose = (Loose(at, at + len(unsure), 0.01),) if unsure else ()
    heads = (("order cancel", 0.99),)
    return Reading(heads, "", frozenset(), spans, places, (), loose=loose, plain=plain)


AGAINST = {
    "forbidden": (
        "don't cancel job 7", "do not cancel job 7", "never cancel job 7", "brich job 7 nicht ab",
        "brich bloß nicht job 7 ab", "n'annule pas le job 7", "no canceles el job 7",
        "no cancel job 7", "nunca canceles el job 7",
        "a pity that ben had to cancel job 7",
        "schade, dass lea job 7 abbricht",
        "me da pena que lea cancelara el job 7", "you don't need to cancel job 7",
        "we don't need it cancelled, job 7",
        "no hace falta cancelar el job 7",
    ),
    "condition": (
        "cancel job 7 if it hangs", "cancel job 7 unless it runs", "cancel job 7 when it is done",
        "brich job 7 ab, falls er hängt", "sobald er fertig ist, brich job 7 ab",
        "annule le job 7 s'il échoue si possible", "annule le job 7 quand il a fini",
        "I wonder whether to cancel job 7", "ich überlege, ob ich job 7 abbreche",
        "cancela el job 7 si falla", "cancela el job 7 cuando termine", "cancel job 7 until monday",
    ),
    "time": (
        "cancel job 7 tomorrow", "cancel job 7 at 17:00", "cancel job 7 later",
        "brich job 7 morgen ab", "annule le job 7 demain", "cancela el job 7 mañana",
    ),
    "unread": (
        "cancel job 7 and 8", "cancel job 7 and bench", "cancel job 7 but the second one",
        "cancel job 7 except the sweep", "cancel job 7 on the other machine",
        "brich job 7 auf dem anderen Rechner ab", "annule le job 7 sur l'autre machine",
        "cancela el job 7 en otra máquina",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "request_text"), [(why, text) for why, texts in AGAINST.items() for text in texts]
)
def test_a_word_against_an_order_refuses_it_where_there_is_a_doubt(
    problem: str, request_text: str
) -> None:
    found = reading(request_text, ("jobs", "7"))
    refused = against(request_text, found, Order("cancel", jobs=(7,)), KNOWN, NOW)
    assert refused is not None and refused.problem == problem


@pytest.mark.parametrize(
    "request_text",
    ["cancel job 7, wait no", "cancel job 7... never mind", "brich job 7 ab. ach nein",
     "retry job 7 with twice the memory, just kidding", "brich job 7 ab, war nur ein Witz",
     "relance le 7 avec deux fois plus de mémoire, non, laisse tomber",
     "repite el 7 con el doble de memoria, era broma"],
)  # fmt: skip
def test_an_order_that_is_taken_back_at_its_end_is_refused_however_sure_it_is(
    request_text: str,
) -> None:
    found = reading(request_text, ("jobs", "7"), plain=1.0)
    refused = against(request_text, found, Order("retry", jobs=(7,)), KNOWN, NOW)
    assert refused is not None and refused.problem == "forbidden"


@pytest.mark.parametrize(
    ("request_text", "states"),
    [
        ("cancel everything that is not running", ("running", "starting")),
        ("hold everything that isn't running", ("running", "starting")),
        ("annule tout ce qui ne tourne pas", ("running", "starting")),
        ("cancela todo lo que no está corriendo", ("queued", "starting", "running")),
        ("cancel all but the waiting ones", ("queued",)),
    ],
)
def test_jobs_of_the_states_that_are_ruled_out_are_never_proposed(
    request_text: str, states: tuple[str, ...]
) -> None:
    found = reading(request_text, plain=1.0)
    refused = against(request_text, found, Order("cancel", states=states), KNOWN, NOW)
    assert refused is not None and refused.problem == "unread"


def test_jobs_that_do_not_run_yet_wait() -> None:
    request_text = "brich alles ab, was noch nicht läuft"
    found = reading(request_text, plain=1.0)
    assert against(request_text, found, Order("cancel", states=("queued",)), KNOWN, NOW) is None


@pytest.mark.parametrize("request_text", AGAINST["forbidden"])
def test_the_encoder_has_read_these_words_where_it_is_sure(request_text: str) -> None:
    found = reading(request_text, ("jobs", "7"), plain=1.0)
    assert against(request_text, found, Order("cancel", jobs=(7,)), KNOWN, NOW) is None


@pytest.mark.parametrize(
    "request_text",
    ["cancel job 7", "please cancel job 7 now", "cancel the slow job 7", "annule le job 7 stp",
     "kannst du mal bitte job 7 abbrechen, ich hab eine deadline", "cancela el job 7 por favor"],
)  # fmt: skip
def test_a_plain_order_is_not_refused(request_text: str) -> None:
    found = reading(request_text, ("jobs", "7"))
    assert against(request_text, found, Order("cancel", jobs=(7,)), KNOWN, NOW) is None


def test_a_word_that_may_have_a_meaning_needs_a_place() -> None:
    text, order = "cancel job 7 of flurbel", Order("cancel", jobs=(7,))
    refused = against(text, reading(text, ("jobs", "7"), plain=1.0, unsure="flurbel"), order, KNOWN,
                      NOW)  # fmt: skip
    assert refused is not None and refused.words == ("flurbel",)
    placed = reading(text, ("jobs", "7"), ("user", "flurbel"), plain=1.0, unsure="flurbel")
    assert against(text, placed, order, KNOWN, NOW) is None


def test_a_time_that_is_refused_is_named_and_a_tag_is_no_day() -> None:
    order = Order("edit", group="sweep", changes={"tags": "+urgent"})
    text = "add the tag urgent to the sweep group"
    spans = (("tag", "urgent"), ("group", "sweep"))
    assert against(text, reading(text, *spans), order, KNOWN, NOW) is None
    refused = against(f"{text} yesterday", reading(text, *spans), order, KNOWN, NOW)
    assert refused is not None and refused.problem == "time" and refused.words == ("yesterday",)


def test_an_article_needs_no_place_and_a_word_is_told_once() -> None:
    text, order = "let the bench go, before Ben is back", Order("resume", group="bench")
    sure = reading(text, ("group", "bench"), plain=1.0, unsure="the")
    assert against(text, sure, order, KNOWN, NOW) is None
    known = KNOWN._replace(users=("ben",))
    refused = against(text, reading(text, ("group", "bench"), plain=1.0, unsure="Ben"), order,
                      known, NOW)  # fmt: skip
    assert refused is not None and refused.words == ("Ben",)


ALL = Order("cancel", states=("queued", "starting", "running"))


@pytest.mark.parametrize(
    "request_text",
    ["cancel all the old jobs", "cancel the last jobs", "annule les derniers jobs",
     "cancel everything nobody needs", "cancel all jobs on gpu 3", "cancel 3 jobs"],
)  # fmt: skip
def test_an_order_for_all_jobs_is_refused_for_a_word_that_may_choose_among_them(
    request_text: str,
) -> None:
    refused = against(request_text, reading(request_text, plain=1.0), ALL, KNOWN, NOW)
    assert refused is not None and refused.words


@pytest.mark.parametrize(
    "request_text",
    ["cancel all jobs please", "brich alle jobs ab", "annule tous les jobs",
     "cancela todos los jobs", "cancel all the queued jobs"],
)  # fmt: skip
def test_a_plain_order_for_all_jobs_is_not_refused(request_text: str) -> None:
    assert against(request_text, reading(request_text), ALL, KNOWN, NOW) is None


@pytest.mark.parametrize(
    "request_text",
    ["what if I cancel job 7?", "what happens if i cancel 7", "was passiert, wenn ich 7 abbreche?",
     "que se passe-t-il si j'annule le 7", "¿qué pasa si cancelo el 7?"],
)  # fmt: skip
def test_what_an_order_would_do_is_only_told(request_text: str) -> None:
    assert is_supposed(request_text, reading(request_text))
    assert not is_supposed("cancel job 7", reading("cancel job 7"))


COMPLETED = {
    "cancel 3, 4 und 5": (("jobs", "3"), ("jobs", "4"), ("jobs", "5")),
    "cancel job 3 and job 12": (("jobs", "3"), ("jobs", "12")),
    "brich die jobs 3 bis 5 ab": (("jobs", "3 bis 5"),),
    "cancel job number 7 on gpu 2": (("jobs", "7"), ("gpus", "2")),
    "cancel 3 jobs": (),
    "cancel job train": (("jobs", "train"),),
    "kill it at 17:30": (),
}  # fmt: skip


@pytest.mark.parametrize(("request_text", "spans"), COMPLETED.items())
def test_numbers_behind_their_nouns_are_read_by_their_form(
    request_text: str, spans: tuple[tuple[str, str], ...]
) -> None:
    found = completed(request_text, reading(request_text), KNOWN)
    assert found.spans == spans
    assert tuple(request_text[a:b] for a, b in found.places) == tuple(text for _, text in spans)


def test_a_number_within_a_description_is_no_target() -> None:
    text = "brich die zwei ab die auf 10 warten"
    found = completed(text, reading(text, ("jobs", "die auf 10 warten")), KNOWN)
    assert found.spans == (("jobs", "die auf 10 warten"),)


def test_a_time_that_was_cut_by_a_length_is_one() -> None:
    text = "garde-le-moi jusqu'à trois heures et quart"
    cut = reading(text, ("until", "trois"), ("duration", "heures"), ("until", "et quart"))
    assert completed(text, cut, KNOWN).spans == (("until", "trois heures et quart"),)


@pytest.mark.parametrize(
    "request_text",
    ["Nimm 7 aus der Warteschlange - war ein Scherz.", "cancel job 7 - just kidding",
     "annule le 7, c'était une blague", "cancela el 7... era broma"],
)  # fmt: skip
def test_a_joke_is_no_order(request_text: str) -> None:
    found = reading(request_text, ("jobs", "7"), plain=0.9)
    refused = against(request_text, found, Order("cancel", jobs=(7,)), KNOWN, NOW)
    assert refused is not None and refused.problem == "forbidden"
