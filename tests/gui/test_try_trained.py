"""A training run's result offers to try its model: the model is served and shown under Models."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.app.models.requests import AddModel, FindServed, ListModels, ServedNow, StartServing
from gpudeck.app.workloads.result_card import ResultCard
from gpudeck.app.workloads.trained import FindTrained
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.scheduler.protocol.jobs import Done, Job, State
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.readable import clipped, nameless
from tests.gui.served import LLAMA, QWEN
from tests.gui.snapshots import NOW


def trained(state: State, **params: str) -> Job:
    made = snapshots.job(70, state, "train", "train")
    spec = msgspec.structs.replace(made.spec, params={"out": "runs/first", **params})
    return msgspec.structs.replace(made, spec=spec)


def ended_training(verdict: str = "pass") -> Done:
    left = snapshots.result(70, verdict=verdict, workload="train")
    return Done(NOW - 60, NOW - 50, ("cpu",), snapshots.raw(left))


def show_training(fed: Fed, job: Job, workload: str = "train") -> ResultCard:
    fed.feed(msgspec.structs.replace(snapshots.cpu_snapshot(), jobs=(job,)))
    fed.window.show_page("workloads")
    fed.window.workloads.choose(workload)
    return fed.window.workloads.result


def test_a_trained_model_is_tried_with_one_press(fed):
    card = show_training(fed, trained(ended_training()))
    card.try_it.click()
    assert fed.asked[-1] == FindTrained(70)
    fed.fail(FindTrained, "the artifacts of job 70 are on lab")
    assert card.note.text() == "the artifacts of job 70 are on lab"
    card.try_it.click()
    fed.reply(FindTrained, QWEN.path)
    assert fed.window.shown == "models"
    assert fed.asked[-1] == AddModel(QWEN.path)
    fed.reply(AddModel, "Qwen3-8B was added")
    fed.reply(ListModels, (QWEN,))
    fed.reply(FindServed, ServedNow())
    assert fed.asked[-1] == StartServing(Options(QWEN.path), "lease")
    page = fed.window.models
    assert page.said.text() == "Qwen3-8B was added"
    assert page.serving.state_of(QWEN.path)[0] == "starting"


def test_nothing_is_clipped_or_nameless_beside_the_button(fed):
    card = show_training(fed, trained(ended_training()))
    for size in ((800, 560), (1280, 800)):
        fed.window.resize(*size)
        fed.settle()
        assert card.try_it.isVisible()
        assert clipped(fed.window) == []
        assert nameless(fed.window) == []


def test_a_trained_model_that_is_served_is_not_served_twice(fed):
    card = show_training(fed, trained(ended_training()))
    card.try_it.click()
    fed.reply(FindTrained, LLAMA.folder)
    fed.reply(AddModel, "added")
    fed.reply(FindServed, ServedNow((LLAMA,)))
    assert not any(isinstance(request, StartServing) for request in fed.asked)
    assert LLAMA.port in fed.window.models.serving.cards


def test_a_folder_without_a_model_says_why_it_is_not_served(fed):
    card = show_training(fed, trained(ended_training()))
    card.try_it.click()
    fed.reply(FindTrained, "/gone")
    fed.fail(AddModel, "/gone does not exist")
    assert fed.window.models.said.text() == "/gone does not exist"
    assert not any(isinstance(request, StartServing) for request in fed.asked)


@pytest.mark.parametrize(
    ("job", "workload"),
    [
        (trained(ended_training("fail: stopped after step 7")), "train"),
        (trained(ended_training(), estimate="yes"), "train"),
        (snapshots.job(6, Done(NOW - 9, NOW - 5, (), snapshots.raw(snapshots.result()))),
         "attention"),
    ],
)  # fmt: skip
def test_only_a_run_that_left_a_model_offers_to_try_it(fed, job, workload):
    card = show_training(fed, job, workload)
    assert card.isVisible() and not card.try_it.isVisible()
