"""The shipped model is whole, and reads requests that the rules do not read."""

import time

import pytest

from assistant.engine.engine import Engine, EngineAuthor
from assistant.intents.masks import masked
from assistant.intents.model_routes import request_of
from assistant.intents.router import route
from assistant.intents.spots import Known
from assistant.intents.state import State
from assistant.intents.table import SYSTEM, TOOLS, Route, parse
from assistant.library import describe, model_list
from assistant.query.request import Order, Query
from assistant.query.table import SUBJECTS, VERBS
from scheduler.protocol import paths

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # Numba compiles at the first use; the tests of a group share the result.


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(str(paths.shipped_model()), "cpu")


def read(engine: Engine, request: str):
    return route(request, Known(), State(), time.time(), EngineAuthor(engine, lambda: False))


def test_the_shipped_model_is_on_the_list_with_a_card() -> None:
    (model,) = model_list.listed_models()
    assert (model.name, model.problem, model.dtype) == ("rwkv7-deck-13m", "", "F16")
    assert 10e6 < model.parameters < 20e6
    assert describe.describe(model.path) == model
    card = (paths.shipped_model() / "README.md").read_text()
    assert all(part in card for part in ("## Data", "## Training", "## Evaluation", "## Limits"))


@pytest.mark.parametrize(
    ("request_", "query"),
    [
        ("how tepid is gpu 1?", Query("devices", "temp", devices=(1,))),
        ("how blazing hot is gpu 1", Query("devices", "temp", devices=(1,))),
    ],
)
def test_the_model_reads_what_the_rules_do_not(engine, request_, query) -> None:
    found = read(engine, request_)
    assert (found.request, found.by) == (query, "model rwkv7-deck-13m")


def test_the_rules_alone_read_what_they_read_whole(engine) -> None:
    assert read(engine, "hottest gpu").by == "rules"
    assert read(engine, "cancel the cancellation of job 9").request is None


@pytest.mark.parametrize(
    "request_",
    [
        "plz get job 7 outta here",
        "undo job 7",
        "job 7 first or last",
        "the gpu and the queue and the logs",
        "hau job 7 weg",
    ],
)
def test_no_order_comes_from_the_model_alone(engine, request_) -> None:
    found = read(engine, request_)
    assert not isinstance(found.request, Order), "it is offered as a choice at most"


def test_every_route_of_the_table_is_a_query_or_an_order() -> None:
    now = time.time()
    for tool in TOOLS:
        arguments = {
            argument.name: argument.words[0] if argument.words else "{n1}"
            for argument in tool.arguments
            if argument.words or "n" in argument.slots
        }
        found = request_of(Route(tool.role, tool.name, arguments), {"n1": "7"}, now)
        if tool.name == "other":
            assert found is None
        elif isinstance(found, Query):
            assert found.subject in SUBJECTS
            assert not found.measure or found.measure in SUBJECTS[found.subject].measures
        else:
            assert isinstance(found, Order) and found.verb in VERBS


@pytest.mark.parametrize(
    "line",
    ["operate destroy job={n1}", "operate cancel job={n1} force=yes", "operate cancel job=3"],
)
def test_a_line_of_a_model_is_parsed_strictly(line) -> None:
    with pytest.raises(ValueError):
        parse(line)


def test_a_value_cannot_add_an_argument() -> None:
    text, values = masked("cancel job 'x state=all'")
    found = request_of(parse("operate cancel job={w1}"), values, 0.0)
    assert found == Order("cancel", jobs=("x state=all",)), text


def test_the_likeliest_texts_have_their_probabilities(engine) -> None:
    author = EngineAuthor(engine, lambda: False)
    ways = author.continuations(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 4)
    *_, greedy = author.write(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 0)
    assert greedy.text in [way.text for way in ways]
    assert [way.chance for way in ways] == sorted(
        (way.chance for way in ways), reverse=True
    ) and 0 < sum(way.chance for way in ways) <= 1
    assert len({way.text for way in ways}) == len(ways) > 1
