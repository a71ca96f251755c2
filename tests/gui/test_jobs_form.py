"""The form that queues any command: by keyboard alone, with a forecast while it is filled in;
against the real daemon, too."""

from __future__ import annotations

import os

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog

from gpudeck.app.jobs.form import FIELDS, JobForm
from gpudeck.app.link.link import Link
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Forecast
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wait_reasons import QueuePaused
from gpudeck.scheduler.verbs.submit import Foresee, Submit, SubmitMany
from tests.gui import snapshots
from tests.gui.conftest import exchange
from tests.gui.snapshots import NOW
from tests.support import eventually, state_folder

CTRL = Qt.KeyboardModifier.ControlModifier
PATIENCE_MS = 20_000
FILLED = {
    "command": "python -c 'print(1); x' --lr=0.1",
    "where": "ray",
    "env": "WANDB_MODE=offline LR='0.1 0.2'",
    "cwd": "/on/the/cluster",
    "name": "first",
    "gpus": "2",
    "memory": "20GiB",
    "gpu_type": "h100",
    "priority": "-3",
    "group": "night",
    "timeout": "2h",
    "retries": "4",
    "begin": "2030-12-01 08:00",
    "after": "3, 4",
    "after_any": "5",
    "nice": "12",
    "host_memory": "64GiB",
    "cpus": "1.5",
    "array": "0-2",
    "tags": "paper, v2",
    "notify": "phone",
    "notes": "the long one",
}
OPTIONS = {
    "where": "ray:lab",
    "env": {"WANDB_MODE": "offline", "LR": "0.1 0.2"},
    "cwd": "/on/the/cluster",
    "name": "first",
    "gpus": 2,
    "memory": 20 * 2**30,
    "gpu_type": "h100",
    "priority": -3,
    "group": "night",
    "timeout": 7200.0,
    "retries": 4,
    "begin": "2030-12-01 08:00",
    "after": (3, 4),
    "after_any": (5,),
    "nice": 12,
    "host_memory": 64 * 2**30,
    "cpus": 1.5,
    "tags": ("paper", "v2"),
    "notify": ("phone",),
    "notes": "the long one",
}


@pytest.fixture
def page(fed):
    fed.window.show_page("jobs")
    fed.feed(snapshots.gpu_snapshot(2))
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_N, CTRL)
    fed.settle()
    return fed.window.jobs


def of(fed, kind: type) -> list[object]:
    return [request for request in fed.asked if isinstance(request, kind)]


def with_clusters(snapshot: Snapshot, *names: str) -> Snapshot:
    settings = msgspec.structs.replace(
        snapshot.settings, clusters={name: ClusterSettings("http://head:8265") for name in names}
    )
    return msgspec.structs.replace(snapshot, settings=settings)


def test_every_field_is_reached_and_filled_by_keyboard_and_makes_the_job(fed, page, qtbot):
    assert (page.form.isVisible(), page.details.isVisible()) == (True, False)
    fed.feed(with_clusters(snapshots.gpu_snapshot(2, NOW + 1), "ray:lab"))
    for field in FIELDS:
        assert fed.app.focusWidget() is page.form.editors.get(field.name, page.form.where), (
            field.name
        )
        assert fed.app.focusWidget().accessibleName() == field.label
        QTest.keyClicks(fed.app.focusWidget(), FILLED[field.name])
        QTest.keyClick(fed.app.focusWidget(), Qt.Key.Key_Tab)
    spec = make_spec(("python", "-c", "print(1); x", "--lr=0.1"), OPTIONS)
    wanted = SubmitMany.array(spec, (0, 1, 2))
    qtbot.waitUntil(lambda: of(fed, Foresee) == [Foresee(spec)], timeout=PATIENCE_MS)
    QTest.keyClick(page.form.editors["notes"], Qt.Key.Key_Return, CTRL)
    (sent,) = of(fed, SubmitMany)
    assert sent == msgspec.structs.replace(wanted, token=sent.token), "each has its own token"
    fed.reply(SubmitMany, (snapshots.job(9, snapshots.Queued("x")),))
    assert (page.form.isVisible(), page.details.isVisible()) == (False, True)
    assert page.details.title.text().startswith("Job 9")


def test_clusters_can_be_chosen_and_a_removed_one_stays_chosen(fed, page):
    form = page.form
    form.editors["command"].setText("true")
    assert (form.where.isVisible(), form.editors["env"].isVisible()) == (False, True)
    fed.feed(with_clusters(snapshots.gpu_snapshot(2, NOW + 3), "slurm:hpc", "ray:lab"))
    assert [form.where.itemText(at) for at in range(form.where.count())] == [
        "this machine",
        "ray:lab",
        "slurm:hpc",
    ]
    assert form.where.isVisible()
    form.where.setCurrentIndex(2)
    form.editors["env"].setText("A=1")
    fed.feed(snapshots.gpu_snapshot(2, NOW + 6))
    assert (form.where.currentText(), form.where.isVisible()) == ("slurm:hpc", True), (
        "never another place than the one that was chosen"
    )
    assert form.form.spec() == make_spec(("true",), {"where": "slurm:hpc", "env": {"A": "1"}})
    form.where.setCurrentIndex(0)
    here = make_spec(("true",), {})
    assert form.form.spec() == msgspec.structs.replace(here, env={**here.env, "A": "1"}), (
        "here a job has this window's environment, too"
    )
    fed.feed(snapshots.gpu_snapshot(2, NOW + 9))
    assert not form.where.isVisible()


def test_limits_that_this_machine_cannot_keep_are_not_offered(fed, page):
    limits = [page.form.editors[name] for name in ("host_memory", "cpus")]
    assert all(editor.isEnabled() and not editor.toolTip() for editor in limits)
    limited = make_spec(("true",), {"cpus": 1.5})
    why = "systemd did not delegate the cgroup controller cpu to you"
    without = msgspec.structs.replace(snapshots.gpu_snapshot(2, NOW + 3), unlimited=why)
    fed.feed(without)
    for editor in limits:
        assert (editor.isEnabled(), editor.placeholderText()) == (False, "not available here")
        assert editor.toolTip() == f"Host memory and CPUs cannot be limited here: {why}"
    page.form.fill(limited)
    fed.feed(without)
    assert [editor.isEnabled() for editor in limits] == [False, True], "it can be removed"
    assert page.form.form.spec().cpus == 1.5
    fed.feed(snapshots.gpu_snapshot(2, NOW + 6))
    assert all(editor.isEnabled() and not editor.toolTip() for editor in limits)


def test_the_forecast_follows_typing(fed, page, qtbot):
    editor, said = page.form.editors["command"], page.form.said
    assert not page.form.queue.isEnabled()
    QTest.keyClicks(editor, "true")
    qtbot.waitUntil(lambda: bool(of(fed, Foresee)), timeout=PATIENCE_MS)
    asked = of(fed, Foresee)[-1]
    fed.reply(asked, Forecast((snapshots.gpu(1).id,), NOW))
    assert said.text() == "Would start now on GPU 1."
    fed.feed(snapshots.gpu_snapshot(2, NOW + 3))
    fed.reply(asked, Forecast((), None, "the queue is paused", QueuePaused()))
    assert said.text() == "Would wait; start time unknown: the queue is paused."
    QTest.keyClicks(editor, " x")
    qtbot.waitUntil(lambda: of(fed, Foresee)[-1].spec.argv == ("true", "x"), timeout=PATIENCE_MS)
    fed.reply(asked, Forecast((), NOW))
    fed.fail(asked, "of something else")
    assert "start now" not in said.text(), "an answer to what was typed before"
    assert "else" not in said.text()
    fed.fail(of(fed, Foresee)[-1], "the job needs 9 GPUs; this machine has 2")
    assert said.text() == "the job needs 9 GPUs; this machine has 2"
    page.form.editors["array"].setText("0-199")
    qtbot.waitUntil(lambda: len(of(fed, Foresee)) > 2, timeout=PATIENCE_MS)
    fed.reply(of(fed, Foresee)[-1], Forecast((snapshots.gpu(1).id,), NOW))
    assert said.text() == "First of 200 jobs: Would start now on GPU 1."


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("command", "python 'x", "Command: enter a command"),
        ("memory", "much", "Memory: an amount of memory such as 20GiB"),
        ("cwd", "no/such", "Folder: enter a whole path"),
        ("gpus", "two", "GPUs: expected a whole number, 0 or more; got 'two'"),
        ("after", "3 x", "After (success): expected a whole number"),
        ("array", "9-", "Array: indices such as"),
        ("timeout", "-1h", "Time limit: a time such as"),
        ("env", "A='", "Environment: enter NAME=VALUE"),
    ],
)
def test_invalid_values_are_explained_and_not_sent(fed, page, name, text, says):
    fed.feed(with_clusters(snapshots.gpu_snapshot(2, NOW + 1), "ray:lab"))
    page.form.where.setCurrentIndex(page.form.where.count() - 1)
    page.form.editors["command"].setText("true")
    page.form.editors[name].setText(text)
    assert page.form.said.text().startswith(says)
    QTest.keyClick(page.form.editors[name], Qt.Key.Key_Return, CTRL)
    assert of(fed, Submit) == []


def test_the_form_keeps_its_text_and_escape_returns_to_the_table(fed, page):
    QTest.keyClicks(page.form.editors["command"], "true")
    QTest.keyClick(page.form.editors["command"], Qt.Key.Key_Escape)
    fed.settle()
    assert (page.form.isVisible(), page.details.isVisible(), page.table.hasFocus()) == (
        False,
        True,
        True,
    )
    page.new.click()
    assert page.form.editors["command"].selectedText() == "true"


def test_a_press_without_an_answer_is_repeated_with_its_token(fed, page):
    form, line = page.form, page.form.editors["command"]

    def press(command):
        line.setText(command)
        form.queue.click()
        return of(fed, Submit)[-1]

    first = press("train one")
    fed.fail(first, "no answer within 30 s, so it is not known whether the job was queued")
    assert "not known" in form.said.text()
    assert press("train two").token != first.token
    again = press("train one")
    assert again is not first and again.token == first.token
    fed.reply(again, snapshots.job(9, snapshots.Queued("x")))
    assert press("train one").token != first.token, "that answer arrived: this is a new job"


def test_the_daemon_forecasts_and_queues_the_job_of_the_form(clean_qt, qtbot, tmp_path):
    with state_folder(tmp_path / "home"), Client() as deck:
        eventually(lambda: deck.snapshot().devices)
        deck.pause()
        form = JobForm()
        form.values |= {
            "command": "sh -c 'echo hi'",
            "cwd": str(tmp_path),
            "array": "4,7",
            "timeout": "90",
            "tags": "a,b",
            "priority": "2",
        }
        link = Link()
        deck.configure(clusters={"slurm:none": ClusterSettings()})
        away = make_spec(
            ("true",), {"where": "slurm:none", "cwd": "/only/there", "env": {"A": "1"}}
        )
        assert exchange(qtbot, link, Foresee(form.spec())).reason == "the queue is paused"
        assert len(exchange(qtbot, link, form.submission())) == 2
        with pytest.raises(UserError, match="99 GPUs"):
            exchange(qtbot, link, Foresee(make_spec(("true",), {"gpus": 99})))
        with pytest.raises(UserError, match="no folder /only/there"):
            exchange(qtbot, link, Foresee(make_spec(("true",), {"cwd": "/only/there"})))
        exchange(qtbot, link, Foresee(away))
        exchange(qtbot, link, Submit(away))
        *specs, there = [job.spec for job in reversed(deck.jobs())]
        assert [(s.index, s.argv, s.cwd, s.timeout, s.tags, s.priority) for s in specs] == [
            (index, ("sh", "-c", "echo hi"), os.fspath(tmp_path), 90.0, ("a", "b"), 2)
            for index in (4, 7)
        ]
        assert (there.where, there.cwd) == ("slurm:none", "/only/there")
        link.stop()


def test_the_form_submits_the_cpu_priority(fed, page):
    page.form.editors["command"].setText("true")
    page.form.editors["nice"].setText("5")
    assert page.form.form.spec() == make_spec(("true",), {"nice": 5})
    page.form.editors["nice"].setText("-5")
    assert page.form.said.text() == "CPU priority: expected a whole number, 0 or more; got '-5'"


def test_the_environment_of_a_job_here_is_that_of_the_window_and_what_was_typed(page, monkeypatch):
    monkeypatch.setenv("SEED", "1")
    page.form.editors["command"].setText("true")
    page.form.editors["env"].setText("SEED=2 NAME='two words'")
    env = page.form.form.spec().env
    assert (env["SEED"], env["NAME"]) == ("2", "two words")
    assert env["PATH"] == os.environ["PATH"]


def test_an_earlier_job_is_a_template_and_clear_empties_the_form(fed, page):
    spec = make_spec(
        ("python", "train.py", "--name=two words"),
        {
            "cwd": "/data/run",
            "name": "big",
            "gpus": 2,
            "memory": "1536MiB",
            "gpu_type": "h100",
            "priority": 3,
            "group": "night",
            "timeout": "90m",
            "retries": 2,
            "nice": 5,
            "tags": ("a", "b"),
            "notes": "kept",
        },
    )
    made = snapshots.gpu_snapshot(2, NOW + 1)
    job = msgspec.structs.replace(snapshots.job(30, snapshots.Done(1.0, 2.0)), spec=spec)
    fed.feed(msgspec.structs.replace(made, jobs=(job, *made.jobs)))
    page.form.menu.aboutToShow.emit()
    first = page.form.menu.actions()[0]
    assert first.text() == "30 · python train.py '--name=two words'"
    first.trigger()
    filled = page.form.form.spec()
    assert msgspec.structs.replace(filled, env=spec.env) == spec
    page.form.clear.click()
    assert page.form.form.spec() is None
    assert all(editor.text() == "" for editor in page.form.editors.values())
    assert page.form.editors["command"].hasFocus()


def test_a_job_of_the_list_is_a_template_by_its_key(fed, page):
    page.form.close_button.click()
    page.choose(4)
    QTest.keyClick(page, Qt.Key.Key_D, CTRL)
    assert page.form.isVisible()
    assert page.form.editors["command"].text() == "python train.py --epochs=3"


def test_the_folder_is_chosen_in_a_dialog(page, monkeypatch, tmp_path):
    monkeypatch.setattr(QFileDialog, "open", lambda self: None)
    page.form.browse.click()
    (dialog,) = page.form.findChildren(QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(tmp_path))
    assert page.form.editors["cwd"].text() == str(tmp_path)


def test_a_command_that_is_not_there_is_warned_of_in_the_form(fed, page, qtbot):
    page.form.editors["command"].setText("pyhton train.py")
    qtbot.waitUntil(lambda: bool(of(fed, Foresee)), timeout=PATIENCE_MS)
    fed.reply(Foresee, Forecast(("GPU-00000001",), NOW))
    assert page.form.said.text().startswith("There is no command 'pyhton' in the folders of PATH")
    assert page.form.said.property("meaning") == "warm"
