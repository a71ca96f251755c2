"""The model that comes with the program: it is whole, and knows its tools."""

import pytest

from assistant.engine import Engine, EngineAuthor
from assistant.library import describe, known
from assistant.routes import SYSTEM
from assistant.tools.route import route
from scheduler import paths

pytestmark = pytest.mark.xdist_group("rwkv")  # what Numba compiles at the first use is compiled once


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(str(paths.shipped_model()), "cpu")


def test_it_is_on_the_list_with_a_card() -> None:
    (model,) = known.known()
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
    ],
)
def test_it_knows_which_tool_a_request_needs(engine, request_, line) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert found.call is not None
    assert (found.call.line, found.by) == (line, "model rwkv7-deck-13m")
    assert not found.choices


def test_it_asks_back_where_it_is_not_sure(engine) -> None:
    author = EngineAuthor(engine, lambda: False)
    found = [route(request, (), author) for request in ("job 7 first or last", "undo job 7", "the gpu and the queue and the logs")]
    asked = [routed for routed in found if routed.choices]
    assert asked, "each of them may mean several things"
    assert all(len(routed.choices) <= 3 and routed.call in routed.choices for routed in asked)


@pytest.mark.parametrize(
    ("request_", "may_mean"),
    [
        ("termunate my last job", "operate cancel job=last"),
        ("never ever cancel job 7", "operate cancel job=7"),
        ("ne pas annuler la tâche 3", "operate cancel job=3"),
        ("resume", "operate resume"),
    ],
    ids=["an order once it is mended", "an order that is forbidden", "with nothing else to choose", "an order by the rules"],
)
def test_it_asks_back_before_it_takes_an_order_for_granted(engine, request_, may_mean) -> None:
    found = route(request_, (), EngineAuthor(engine, lambda: False))
    assert may_mean in [call.line for call in found.choices]


def test_its_likeliest_texts_are_what_it_writes_with_their_probabilities(engine) -> None:
    author = EngineAuthor(engine, lambda: False)
    ways = author.ways(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 4)
    *_, greedy = author.write(author.begin(SYSTEM, "stop or hold job {n1}, whatever"), 0)
    assert greedy.text in [way.text for way in ways]
    assert [way.chance for way in ways] == sorted((way.chance for way in ways), reverse=True) and 0 < sum(way.chance for way in ways) <= 1
    assert len({way.text for way in ways}) == len(ways) > 1
