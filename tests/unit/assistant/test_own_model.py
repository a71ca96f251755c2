"""The shipped model is whole, and knows its tools."""

import pytest

from assistant.engine.engine import Engine, EngineAuthor
from assistant.intents.router import route
from assistant.intents.table import SYSTEM
from assistant.library import describe, model_list
from scheduler.protocol import paths

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # Numba compiles at the first use; the tests of a group share the result.


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(str(paths.shipped_model()), "cpu")


def test_the_shipped_model_is_on_the_list_with_a_card() -> None:
    (model,) = model_list.listed_models()
    assert (model.name, model.problem, model.dtype) == ("rwkv7-deck-13m", "", "F16")
    assert 10e6 < model.parameters < 20e6
    assert describe.describe(model.path) == model
    card = (paths.shipped_model() / "README.md").read_text()
    assert all(part in card for part in ("## Data", "## Training", "## Evaluation", "## Limits"))


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        ("how hot is gpu 1?", "answer device metric=temp gpu=1"),
        ("HOW HOT IS GPU 1????", "answer device metric=temp gpu=1"),
        ("warum wartet job 12?", "answer waiting job=12"),
        ("what is the temprature of gpu 1", "answer device metric=temp gpu=1"),
        ("please cancel job 7", "operate cancel job=7"),
        ("can you tidy up the disk", "housekeep scan"),
        ("give me a summary of the last 3 hours", "report brief hours=3"),
        ("compare job 8 with its previous run", "answer compare job=8"),
        ("compare job 8 with the last job", "answer compare job=last other=8"),
        (
            "is my last job faster than job 7, and what's its power",
            "answer compare job=last other=7",
        ),
        ("run rain", "operate submit workload=rain"),
        ("how busy is the CPU?", "answer device metric=util"),
        ("how hot is the CPU?", "answer device metric=temp"),
        ("resume", "operate resume"),
    ],
)
def test_the_shipped_model_routes_requests(engine, request_, line) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert found.call is not None
    assert (found.call.line, found.by) == (line, "model rwkv7-deck-13m")
    assert not found.choices


def test_the_assistant_asks_back_if_the_model_is_not_sure(engine) -> None:
    author = EngineAuthor(engine, lambda: False)
    found = [
        route(request, (), author)
        for request in ("job 7 first or last", "undo job 7", "the gpu and the queue and the logs")
    ]
    asked = [routed for routed in found if routed.choices]
    assert asked, "each of them may mean several things"
    assert all(len(routed.choices) <= 3 and routed.call in routed.choices for routed in asked)


@pytest.mark.parametrize(
    ("request_", "may_mean"),
    [("canel the last job", "operate cancel job=last"), ("clear the queue", "operate resume")],
)
def test_the_assistant_asks_back_before_unclear_orders(engine, request_, may_mean) -> None:
    """Try an order that is one only once it is corrected, and one that the model cannot
    distinguish.
    """
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert may_mean in [call.line for call in found.choices]


@pytest.mark.parametrize(
    "request_",
    [
        "never ever cancel job 7",
        "do not restart job 9",
        "ne pas annuler la tâche 3",
        "brich job 5 auf keinen fall ab",
        "no canceles el trabajo 4",
    ],
)
def test_a_forbidden_order_is_not_carried_out(engine, request_) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert found.call is not None and not found.call.acts


@pytest.mark.parametrize(
    "request_",
    [
        "cancel job 7 unless it is nearly done",
        "cancel everything but job 7",
        "cancel job 7 tomorrow",
        "cancel job 7 in an hour",
        "retry job 7 if it failed",
        "brich job 7 ab, falls er hängt",
        "annule le job 7 sauf s'il tourne",
        "cancela el trabajo 7 si falla",
        "run train.py on the cpu",
        "pause the cpu",
        "job 7 cancel?",
        "can i kill pid 1234",
        "may i cancel job 7",
    ],
)
def test_an_order_with_a_condition_or_in_a_question_is_never_done_without_a_card(
    engine, request_
) -> None:
    for author in (EngineAuthor(engine, lambda: False), None):
        found = route(request_, (), author)
        assert found.call is None or not found.call.acts or not found.certain


@pytest.mark.parametrize(
    "request_",
    [
        "is it ok to resume the queue?",
        "wurde job 7 abgebrochen?",
        "¿se puede cancelar el trabajo 7?",
    ],
)
def test_a_question_is_not_taken_for_an_order_without_asking(engine, request_) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert found.call is not None and (not found.call.acts or found.choices)


@pytest.mark.parametrize(
    "request_",
    ["cancel job 7", "please cancel job 7", "could you cancel job 7?", "pause the queue"],
)
def test_a_plain_or_polite_order_is_clear(engine, request_) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert found.call is not None and found.call.acts and found.certain and not found.choices


def test_the_likeliest_texts_have_their_probabilities(engine) -> None:
    author = EngineAuthor(engine, lambda: False)
    ways = author.continuations(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 4)
    *_, greedy = author.write(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 0)
    assert greedy.text in [way.text for way in ways]
    assert [way.chance for way in ways] == sorted(
        (way.chance for way in ways), reverse=True
    ) and 0 < sum(way.chance for way in ways) <= 1
    assert len({way.text for way in ways}) == len(ways) > 1
