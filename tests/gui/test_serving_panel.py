"""Served models on the Models page: what fits, how they are started and stopped, what they do; and
free chat with them."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QGuiApplication

from gpudeck.app.assistant.requests import ChatServed, FinishedAnswer
from gpudeck.app.language import texts
from gpudeck.app.link.link import Link
from gpudeck.app.models.fit import CPU, JOB, LEASE, fit
from gpudeck.app.models.page import ModelsPage
from gpudeck.app.models.requests import FindServed, ListModels, ServedNow, StartServing, StopServing
from gpudeck.app.widgets import theme
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.scheduler.protocol.settings import Settings
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.readable import clipped, nameless
from tests.gui.served import GIB, LLAMA, LOADING, NOW, QWEN
from tests.gui.test_models_page import USED
from tests.support import eventually


def opened(fed: Fed, now: ServedNow = NOW) -> ModelsPage:
    fed.feed(snapshots.gpu_snapshot(1, settings=Settings(model_folder=USED.path)))
    fed.window.show_page("models")
    fed.reply(ListModels, (USED, QWEN))
    fed.reply(FindServed, now)
    fed.settle()
    fed.asked.clear()
    return fed.window.models


def test_a_served_model_shows_what_it_does_and_is_stopped(fed):
    gpu = snapshots.gpu_snapshot(1).devices[0].device
    page = opened(fed, ServedNow((msgspec.structs.replace(LLAMA, gpu=gpu.id), LOADING), GIB))
    llama, phi = page.serving.cards.values()
    assert llama.place.text() == f"GPU 0 · {gpu.name}"
    assert [spark.text for spark in llama.sparks] == [
        "812 tok/s",
        "34 %",
        "61 %",
        "5 of 7 running",
    ]
    facts = dict(llama.facts.facts)
    assert (facts["Cache"], facts["Reusable cache"]) == ("81,920 tokens", "12 %")
    assert (facts["Context"], facts["Drafts accepted"]) == ("16,384 tokens", "60 %")
    assert facts["Cache accuracy"] == "98 %", "63 of 64 tokens"
    assert (llama.pill.text(), llama.pill.property("pill")) == ("Serving", "succeeded")
    assert phi.pill.text() == "Loading"
    assert not llama.progress.isVisible() and not llama.state.isVisible()
    assert phi.state.text() == "Loading: 2.0 GiB of 7.0 GiB, about 3.8 s left"
    assert phi.progress.share == pytest.approx(2 / 7) and not phi.sparks[0].isVisible()
    llama.copy.click()
    assert QGuiApplication.clipboard().text() == "http://127.0.0.1:8420/v1"
    llama.stop.click()
    assert fed.asked == [StopServing(llama.served)] and not llama.stop.isEnabled()
    fed.reply(StopServing, "Llama-3.1-8B-Instruct is no longer served")
    fed.reply(FindServed, ServedNow((LOADING,), GIB))
    assert list(page.serving.cards) == [LOADING.port]
    assert page.said.text() == "Llama-3.1-8B-Instruct is no longer served"
    failed = msgspec.structs.replace(LOADING, phase="failed", note="needs 17.2 GiB")
    page.serving.look()
    fed.reply(FindServed, ServedNow((failed,), GIB))
    assert (phi.state.text(), phi.state.property("meaning")) == ("needs 17.2 GiB", "failed")


def test_what_fits_is_shown_for_what_is_chosen_and_the_model_is_started(fed):
    page = opened(fed)
    form = page.cards[QWEN.path].serve
    assert form is not None
    assert not form.place.isVisible()
    form.more.click()
    assert form.place.isVisible()
    assert "44.2 GiB are free, and the cache can hold 199,936 tokens" in form.bar.text.text()
    shown = form.bar.bar.accessibleDescription()
    assert shown.startswith("weights 15.3 GiB, ") and "cache 27.5 GiB, stays free" in shown
    form.place.setCurrentText(CPU)
    assert form.bar.text.text().startswith("CPU: ") and "40,960 tokens" in form.bar.text.text()
    form.place.setCurrentText(LEASE)
    assert form.bar.text.text().startswith("GPU 0"), "the bar answers what is chosen"
    assert page.cards[QWEN.path].pill.text() == "Stored"
    form.weights.setCurrentText("int4")
    form.tokens.setCurrentText("16,384")
    assert "16,384 tokens" in form.bar.text.text()
    assert "cache 2.2 GiB" in form.bar.bar.accessibleDescription()
    form.tokens.setCurrentText("262,144")
    form.cache.setCurrentText("fp8")
    form.place.setCurrentText(JOB)
    form.start.click()
    wanted = Options(QWEN.path, "auto", "int4", "fp8", 262144)
    assert fed.asked == [StartServing(wanted, "job")] and not form.start.isEnabled()
    fed.fail(StartServing, "the daemon is gone")
    assert form.start.isEnabled() and page.said.text() == "the daemon is gone"
    form.place.setCurrentText(CPU)
    form.start.click()
    assert fed.asked[-1] == StartServing(msgspec.structs.replace(wanted, device="cpu"), "lease")
    other = msgspec.structs.replace(LOADING, folder=QWEN.path)
    fed.reply(StartServing, "Qwen3-8B is served")
    fed.reply(FindServed, ServedNow((other,), GIB))
    assert not form.start.isEnabled(), "it is served already"
    assert not form.isVisible(), "whether it fits is no question any more"
    (above,) = page.serving.cards.values()
    assert page.cards[QWEN.path].pill.text() == above.pill.text() == "Loading", "one state"
    ready = msgspec.structs.replace(other, phase="ready", device="cpu")
    page.serving.look()
    fed.reply(FindServed, ServedNow((ready,), GIB))
    assert page.cards[QWEN.path].pill.text() == above.pill.text() == "Serving"


def test_the_cpu_is_the_cpu_in_every_language(fed):
    texts.use("de")
    form = opened(fed).cards[QWEN.path].serve
    assert form is not None and form.bar.text.text().startswith("GPU 0")
    form.place.setCurrentIndex(form.place.findData(CPU))
    assert form.place.currentText() != CPU and form.bar.text.text().startswith("CPU: ")


def test_a_model_that_does_not_fit_says_what_it_needs():
    assert QWEN.footprint is not None
    one, none = snapshots.gpu_snapshot(1), snapshots.cpu_snapshot()
    gpu = fit(QWEN.footprint, Options(""), LEASE, one, 8 * GIB)
    assert gpu is not None and gpu.room is not None and gpu.room.cache <= gpu.free
    assert sum(size for _, size in gpu.parts) == gpu.free
    cpu = fit(QWEN.footprint, Options(""), CPU, one, 8 * GIB)
    assert cpu is not None and cpu.room is None
    assert "needs 15.6 GiB" in cpu.problem and "8.0 GiB are free" in cpu.text
    fp8 = fit(QWEN.footprint, Options("", weights="fp8"), LEASE, none, 64 * GIB)
    assert fp8 is not None and fp8.problem == "FP8 weights need a GPU"
    assert fp8.place == "CPU, as this machine has no GPU", "where it would really run"
    replay = snapshots.gpu_snapshot(1, replay=True)
    shown = fit(QWEN.footprint, Options(""), LEASE, replay, 64 * GIB)
    assert shown is not None and shown.place == "CPU, as a recording is shown"
    job = fit(QWEN.footprint, Options(""), JOB, none, 64 * GIB)
    assert job is not None and "the job would wait" in job.text
    best = fit(QWEN.footprint, Options(""), LEASE, snapshots.gpu_snapshot(8), 8 * GIB)
    assert best is not None and "the most free of 8" in best.place


@pytest.mark.parametrize(("scheme", "size"), [("light", (800, 560)), ("dark", (1280, 800))])
def test_nothing_is_clipped_or_nameless(fed, scheme, size):
    theme.apply(fed.app, scheme)
    fed.window.resize(*size)
    opened(fed)
    fed.settle()
    assert clipped(fed.window) == []
    assert nameless(fed.window) == []


def test_nothing_is_asked_while_the_page_is_hidden(fed):
    page = opened(fed)
    fed.window.show_page("dashboard")
    assert not page.serving._timer.isActive()
    fed.window.show_page("models")
    assert page.serving._timer.isActive()


def test_what_is_served_is_asked_for_again_after_each_answer(fed):
    page = opened(fed)
    for _ in range(2):
        fed.looks.clear()
        page.serving.look()
        page.serving.look()
        assert fed.looks == [FindServed()], "one request at a time is on its way"
        fed.reply(FindServed, ServedNow())
    assert not page.serving.cards


def test_free_chat_uses_a_served_model_and_another_one_makes_a_branch(fed):
    page = opened(fed)
    fed.window.show_page("assistant")
    fed.settle()
    view = fed.window.assistant.view
    partner = view.composer.partner
    titles = [partner.itemText(i) for i in range(partner.count())]
    assert titles == ["Llama-3.1-8B-Instruct", "Phi-4-mini", USED.name, "Qwen3-8B (not loaded)"]
    assert not partner.isVisible()
    view.composer.free.click()
    assert partner.currentData() == "", "the assistant's own stays chosen when others come"
    partner.setCurrentIndex(0)
    assert partner.isVisible() and "which is served" in partner.toolTip()
    view.ask("tell me a joke")
    assert fed.asked[-1] == ChatServed(LLAMA.folder, ("tell me a joke",))
    text = "Here:\n\n```python\nprint('a joke')\n```\n"
    fed.answer(FinishedAnswer(text, f"model {LLAMA.name}"))
    partner.setCurrentIndex(3)
    view.again_last()
    assert fed.asked[-1] == ChatServed(QWEN.path, ("tell me a joke",))
    fed.answer(FinishedAnswer("another", f"model {QWEN.name}"))
    answer = view.conversation.path[-1]
    assert len(view.conversation.tree.siblings(answer)) == 2
    view._step(answer, -1)
    assert view.conversation.messages[-1].writer == f"model {LLAMA.name}"
    view.composer.edit(view.conversation.path[0], "tell me a story")
    view.ask("tell me a story")
    assert fed.asked[-1] == ChatServed(QWEN.path, ("tell me a story",)), "an edit is a new branch"
    fed.answer(FinishedAnswer("a story", f"model {QWEN.name}"))
    page.serving.look()
    fed.reply(FindServed, ServedNow())
    assert partner.currentData() == QWEN.path, "the choice stays when others end"


@pytest.mark.slow
def test_the_window_starts_a_model_chats_with_it_and_stops_it(home, tmp_path, qtbot):
    from gpudeck.accel.serving import tiny
    from gpudeck.scheduler.protocol import settings
    from gpudeck.scheduler.protocol.settings import TEMPLATE

    settings.save(Settings(source="cpu", model_folder=TEMPLATE))
    tiny.make(tmp_path / "tiny")
    link = Link()
    answer = exchange(qtbot, link, ChatServed(str(tmp_path / "tiny"), ("How full is the queue?",)))
    assert answer.text and (answer.writer, answer.device) == ("model tiny", "cpu")
    now = exchange(qtbot, link, FindServed())
    assert [each.name for each in now.served] == ["tiny"] and now.host_free > 0
    said = exchange(qtbot, link, StopServing(now.served[0]))
    assert said == "tiny is no longer served"
    eventually(lambda: exchange(qtbot, link, FindServed()).served == ())
    link.stop()


@pytest.mark.parametrize("width", [1000, 1900])
def test_models_begin_at_the_top_left_while_nothing_is_served(fed, width):
    fed.window.resize(width, 800)
    page = opened(fed, ServedNow((), GIB))
    fed.settle()
    corner = page.stored.mapTo(page, QPoint(0, 0))
    above = page.filter.mapTo(page, page.filter.rect().bottomLeft())
    assert corner.x() < 20 and corner.y() - above.y() < 40
    fed.reply(FindServed, NOW)
    fed.settle()
    served = page.serving.mapTo(page, QPoint(0, 0))
    corner = page.stored.mapTo(page, QPoint(0, 0))
    assert (served.x(), served.y()) < (corner.x(), corner.y()), "what is served comes first"
