"""Test what a language model may make of a request that the encoder cannot read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpudeck.assistant.host import arbiter
from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.host.context import RequestContext
from gpudeck.assistant.host.model_residency import ModelResidency
from gpudeck.assistant.host_protocol import Chunk
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.intents.names import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.understand import Understood, is_unclear, understand_as
from gpudeck.assistant.library import describe
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.query.table import ROWS, VERBS
from gpudeck.assistant.query.written import read_request, request_schema
from gpudeck.assistant.reader.reading import shipped_reader
from gpudeck.assistant.serve.client import ServedChat
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.assistant.tools.proposal_store import ProposalStore
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.support import in_english
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf

pytestmark = pytest.mark.xdist_group("rwkv")
KNOWN = Known(("train", "eval"), ("night",), (), ("lea",), "", ("train", "eval"))
SERVED = Served("llama", "/models/llama", 8420, 1, "lease", "ready")


def understood(request: str, meant: Query | Order, state: State | None = None) -> Understood:
    return understand_as(meant, request, KNOWN, state or State(), 0.0, shipped_reader())


@pytest.fixture
def context() -> RequestContext:
    return RequestContext(ModelResidency(), ProposalStore(), RequestChannel())


@pytest.fixture
def noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings with a random RWKV-7, as if it were large enough."""
    folder = tmp_path / "noise-7"
    write_hf(folder, to_hf(random_model(layers=1, channels=64, vocabulary=65536)))
    shutil.copy(vocabulary_file(), folder)
    monkeypatch.setattr(describe, "ABLE", 0)
    return Settings(model_folder=str(folder), model_device="cpu")


def test_every_subject_and_verb_can_be_written() -> None:
    kinds = [one["properties"] for one in request_schema()["anyOf"]]
    subjects = {str(of["subject"]["const"]) for of in kinds if "subject" in of}
    verbs = {str(of["verb"]["const"]) for of in kinds if "verb" in of}
    assert subjects == set(ROWS) and verbs == set(VERBS)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"subject":"jobs","measure":"reason","jobs":[12]}', Query("jobs", "reason", jobs=(12,))),
        ('{"verb":"cancel","jobs":[7]}', Order("cancel", jobs=(7,))),
        ('{"unknown":true}', None),
    ],
)
def test_what_a_model_writes_is_a_query_or_an_order(text: str, meant: Query | Order | None) -> None:
    assert read_request(text, 0.0) == meant


@pytest.mark.parametrize(
    "text", ["", '{"verb":"cancel","jobs":[7', '{"verb":"fly"}', '{"subject":"x"}', "[]"]
)
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        read_request(text, 0.0)


def test_an_order_that_the_request_does_not_say_is_refused() -> None:
    good = understood("get rid of 7 please", Order("cancel", jobs=(7,)))
    assert good.request == Order("cancel", jobs=(7,))
    for request, order in (
        ("get rid of 7 please", Order("cancel", jobs=(8,))),
        ("get rid of it all", Order("cancel", states=("running",))),
        ("do the thing", Order("submit", command="rm -rf ~")),
        ("do the thing", Order("cancel", jobs=("train",))),
        ("do the thing", Order("kill", number=4321)),
    ):
        found = understood(request, order)
        assert found.request is None and found.refusal is not None, order


def test_the_guards_hold_for_what_a_model_read() -> None:
    found = understood("don't get rid of 7", Order("cancel", jobs=(7,)))
    assert found.request is None and found.refusal is not None
    told = understood("get rid of it", Order("cancel", jobs=(7,)), State((7,), about="job"))
    assert told.request == Order("cancel", jobs=(7,))


def test_only_what_would_be_asked_back_is_unclear() -> None:
    assert is_unclear(Understood(None, "en"))
    assert is_unclear(Understood(None, "en", choices=(Query("jobs"), Query("queue"))))
    assert not is_unclear(Understood(Query("jobs"), "en"))
    assert not is_unclear(Understood(None, "en", declined="talk hello"))


def test_nobody_is_asked_without_a_model(
    context: RequestContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    assert arbiter.ask_model("hm", None, context, Settings(model_folder=TEMPLATE)) is None


def test_a_random_model_writes_json_that_is_read_or_refused(
    context: RequestContext, noise: Settings
) -> None:
    """The grammar holds for any weights; only the number of tokens may cut the JSON off."""
    with context.channel.ending:
        found = arbiter.ask_model("was macht der da", Query("jobs"), context, noise)
    context.residency.drop()
    assert found is not None and found.model == "noise-7"
    assert (found.request is None) == bool(found.problem)


def test_a_model_that_is_too_slow_is_given_up(
    context: RequestContext, noise: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arbiter, "PATIENCE_S", 0.0)
    with context.channel.ending:
        found = arbiter.ask_model("was macht der da", None, context, noise)
    context.residency.drop()
    assert found is not None and found.request is None
    assert in_english(found.problem) == "it did not answer within 0 s"


def serve(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Put an answer in the place of that of a served model, as no model that ships writes one."""

    def ask(self: ServedChat, served: Served, turns: Any, take: Any, *rest: Any) -> None:
        take(Chunk(answer))

    monkeypatch.setattr(arbiter, "served_models", lambda: (SERVED,))
    monkeypatch.setattr(ServedChat, "ask", ask)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"unknown":true}', "it does not know it, either"),
        ('{"verb":"cancel"', "Input data was truncated"),
    ],
)
def test_it_is_said_why_a_served_model_does_not_help(
    context: RequestContext, monkeypatch: pytest.MonkeyPatch, answer: str, problem: str
) -> None:
    serve(monkeypatch, answer)
    found = arbiter.ask_model("hm", None, context, Settings(model_folder=TEMPLATE))
    assert found is not None and (found.model, found.request) == ("llama", None)
    assert in_english(found.problem) == problem


def test_a_served_model_that_is_gone_is_said_to_be(
    context: RequestContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    monkeypatch.setattr(arbiter, "served_models", lambda: (SERVED,))
    found = arbiter.ask_model("hm", None, context, Settings(model_folder=TEMPLATE))
    assert found is not None and found.request is None
    assert in_english(found.problem) == "llama is not served any more. Start it under Models"


def test_a_served_model_reads_a_request(
    context: RequestContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, json.dumps({"subject": "jobs", "measure": "reason", "jobs": [12]}))
    found = arbiter.ask_model("hm", None, context, Settings(model_folder=TEMPLATE))
    assert found == arbiter.Arbitration("llama", Query("jobs", "reason", jobs=(12,)))
    context.channel.stop.set()
    with pytest.raises(Cancelled):
        arbiter.ask_model("hm", None, context, Settings(model_folder=TEMPLATE))
