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
from gpudeck.scheduler.protocol.jobs import Forecast, queued
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wait_reasons import QueuePaused, StartFailed
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
    "container": "podman:IMAGE",
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
    "container": "podman:IMAGE",
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
        if fed.app.focusWidget() is page.form.fields.more:
            QTest.keyClick(page.form.fields.more, Qt.Key.Key_Space)
            QTest.keyClick(page.form.fields.more, Qt.Key.Key_Tab)
        editor = page.form.editors.get(field.name, page.form.fields.where)
        assert fed.app.focusWidget() is editor, field.name
        assert fed.app.focusWidget().accessibleName() == field.label
        QTest.keyClicks(fed.app.focusWidget(), FILLED[field.name])
        QTest.keyClick(fed.app.focusWidget(), Qt.Key.Key_Tab)
    spec = make_spec(("python", "-c", "print(1); x", "--lr=0.1"), OPTIONS)
    wanted = SubmitMany.array(spec, (0, 1, 2))
    qtbot.waitUntil(lambda: of(fed, Foresee) == [Foresee(spec)], timeout=PATIENCE_MS)
    QTest.keyClick(page.form.editors["notes"], Qt.Key.Key_Return)
    (sent,) = of(fed, SubmitMany)
    assert sent == msgspec.structs.replace(wanted, token=sent.token), "each has its own token"
    fed.reply(SubmitMany, (snapshots.job(9, queued(StartFailed("x"), 0.0)),))
    assert (page.form.isVisible(), page.details.isVisible()) == (False, True)
    assert page.details.title.text().startswith("Job 9")


def test_clusters_can_be_chosen_and_a_removed_one_stays_chosen(fed, page):
    form = page.form
    form.editors["command"].setText("true")
    assert not form.fields.where.isVisible()
    fed.feed(with_clusters(snapshots.gpu_snapshot(2, NOW + 3), "slurm:hpc", "ray:lab"))
    assert [form.fields.where.itemText(at) for at in range(form.fields.where.count())] == [
        "this machine",
        "ray:lab",
        "slurm:hpc",
    ]
    assert form.fields.where.isVisible()
    form.fields.where.setCurrentIndex(2)
    form.editors["env"].setText("A=1")
    fed.feed(snapshots.gpu_snapshot(2, NOW + 6))
    assert (form.fields.where.currentText(), form.fields.where.isVisible()) == (
        "slurm:hpc",
        True,
    ), "never another place than the one that was chosen"
    assert form.form.spec() == make_spec(
        ("true",), {"gpus": 1, "where": "slurm:hpc", "env": {"A": "1"}}
    )
    form.fields.where.setCurrentIndex(0)
    here = make_spec(("true",), {"gpus": 1})
    assert form.form.spec() == msgspec.structs.replace(here, env={**here.env, "A": "1"}), (
        "here a job has this window's environment, too"
    )
    fed.feed(snapshots.gpu_snapshot(2, NOW + 9))
    assert not form.fields.where.isVisible()


def test_limits_that_this_machine_cannot_keep_are_not_offered(fed, page):
    limits = [page.form.editors[name] for name in ("host_memory", "cpus")]
    assert all(editor.isEnabled() and not editor.toolTip() for editor in limits)
    limited = make_spec(("true",), {"cpus": 1.5})
    why = "systemd did not delegate the cgroup controller cpu to you"
    without = msgspec.structs.replace(snapshots.gpu_snapshot(2, NOW + 3), unlimited=why)
    fed.feed(without)
    for editor in limits:
        assert (editor.isEnabled(), editor.placeholderText()) == (False, "not available here")
        assert (
            editor.toolTip().replace("\n", " ")
            == f"Host memory and CPUs cannot be limited here: {why}"
        )
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
    assert said.text() == "Starts now on GPU 1."
    fed.feed(snapshots.gpu_snapshot(2, NOW + 3))
    fed.reply(asked, Forecast((), None, "the queue is paused", QueuePaused()))
    assert said.text() == "Waiting: the queue is paused; when it starts is not known."
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
    assert said.text() == "First of 200 jobs: Starts now on GPU 1."


def test_invalid_values_are_explained_and_not_sent(fed, page):
    fed.feed(with_clusters(snapshots.gpu_snapshot(2, NOW + 1), "ray:lab"))
    page.form.fields.where.setCurrentIndex(page.form.fields.where.count() - 1)
    page.form.editors["command"].setText("true")
    for name, text, says in (
        ("command", "python 'x", "Enter a command"),
        ("memory", "much", "An amount of memory such as 20GiB"),
        ("cwd", "no/such", "Enter a whole path"),
        ("gpus", "two", "Expected a whole number, 0 or more; got 'two'"),
        ("after", "3 x", "Expected a whole number"),
        ("array", "9-", "Indices such as"),
        ("timeout", "-1h", "A time such as"),
        ("env", "A='", "Enter NAME=VALUE"),
    ):
        editor, note = page.form.editors[name], page.form.fields.notes[name]
        valid = editor.text()
        editor.setText(text)
        assert (note.isVisible(), note.property("meaning")) == (True, "failed"), name
        assert note.text().startswith(says)
        page.form.close_button.setFocus()
        QTest.keyClick(page.form.close_button, Qt.Key.Key_Return)
        assert of(fed, Submit) == []
        assert editor.hasFocus(), f"Return goes to what is wrong: {name}"
        editor.setText(valid)


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
    fed.reply(again, snapshots.job(9, queued(StartFailed("x"), 0.0)))
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
    assert page.form.form.spec() == make_spec(("true",), {"gpus": 1, "nice": 5})
    page.form.editors["nice"].setText("-5")
    note = page.form.fields.notes["nice"].text()
    assert note == "Expected a whole number, 0 or more; got '-5'"


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
    filled = {name: editor.text() for name, editor in page.form.editors.items() if editor.text()}
    assert filled == {"gpus": "1"}
    assert page.form.editors["command"].hasFocus()


def test_a_job_of_the_list_is_a_template_by_its_key(fed, page):
    page.form.close_button.click()
    page.choose(4)
    QTest.keyClick(page, Qt.Key.Key_D, CTRL)
    assert page.form.isVisible()
    assert page.form.editors["command"].text() == "python train.py --epochs=3"


def test_the_folder_is_chosen_in_a_dialog(page, monkeypatch, tmp_path):
    monkeypatch.setattr(QFileDialog, "open", lambda self: None)
    page.form.fields.browse.click()
    (dialog,) = page.form.findChildren(QFileDialog)
    assert dialog.fileMode() == QFileDialog.FileMode.Directory
    dialog.fileSelected.emit(str(tmp_path))
    assert page.form.editors["cwd"].text() == str(tmp_path)


def test_a_command_that_is_not_there_is_warned_of_in_the_form(fed, page, qtbot):
    page.form.editors["command"].setText("pyhton train.py")
    qtbot.waitUntil(lambda: bool(of(fed, Foresee)), timeout=PATIENCE_MS)
    fed.reply(Foresee, Forecast(("GPU-00000001",), NOW))
    note = page.form.fields.notes["command"]
    assert note.text().startswith("There is no command 'pyhton' in the folders of PATH")
    assert note.property("meaning") == "warm"
    assert page.form.queue.isEnabled(), "a job before it may make it"
    fed.feed(snapshots.gpu_snapshot(2, NOW + 1))
    assert note.isVisible(), "it stays while readings come"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("python tran.py --lr 3e-4", "There is no tran.py in {folder}. Did you mean train.py?"),
        ("python -m tran.py", ""),
        ("python train.py missing.py", ""),
        ("sh -c 'python tran.py'", ""),
        ("bash run.sh", "There is no run.sh in {folder}."),
        ("ls none.py", ""),
    ],
)
def test_a_script_that_is_not_there_is_warned_of_in_the_form(tmp_path, command, says):
    (tmp_path / "train.py").touch()
    form = JobForm()
    form.values |= {"command": command, "cwd": str(tmp_path)}
    assert form.warnings().get("command", "") == says.format(folder=tmp_path)
    form.values["cwd"] = str(tmp_path / "none")
    assert form.warnings() == {"cwd": f"There is no folder {tmp_path}/none."}
    form.values["after"] = "3"
    assert form.warnings() == {}, "an earlier job may make it"


def test_gpus_are_stepped_and_memory_is_dragged_or_typed_in_gib(fed, page):
    fields = page.form.fields
    page.form.editors["command"].setText("true")
    assert page.form.form.spec().gpus == 1, "a program for GPUs asks for one"
    fields.gpus.more.click()
    QTest.keyClick(fields.gpus.line, Qt.Key.Key_Up)
    assert page.form.form.spec().gpus == 3
    fields.gpus.less.click()
    fields.memory.slider.setValue(20)
    assert fields.memory.line.text() == "20 GiB"
    assert page.form.form.spec().memory == 20 * 2**30
    QTest.keyClicks(fields.memory.line, "x")
    assert fields.memory.slider.value() == 20, "what cannot be read moves nothing"
    fields.memory.line.setText("31")
    assert page.form.form.spec().memory == 31 * 2**30, "a number without a unit is in GiB"
    assert fields.memory.slider.value() == 31
    fields.memory.slider.setValue(fields.memory.slider.maximum())
    assert page.form.form.spec().memory == 0, "the right end is the whole GPU"


def test_what_is_free_is_said_below_the_fields_and_a_job_without_gpu_is_warned_of(fed, page):
    fed.feed(snapshots.gpu_snapshot(8, NOW + 1))
    notes = page.form.fields.notes
    page.form.editors["command"].setText("true")
    assert notes["gpus"].text().startswith("2 of 8 free: 2, 5; next: GPU 0 about ")
    page.form.editors["memory"].setText("20")
    assert notes["memory"].text() == "Reserved on each GPU; up to 79.0 GiB are free now, on GPU 2"
    page.form.editors["gpu_type"].setText("h100")
    page.form.editors["gpus"].setText("0")
    assert notes["gpus"].text() == "No GPU: the command sees none."
    assert not page.form.fields.memory.isVisible()
    spec = page.form.form.spec()
    assert (spec.gpus, spec.memory, spec.gpu_type) == (0, 0, "")


def test_return_in_an_empty_form_goes_to_the_command_and_sends_nothing(fed, page):
    page.form.editors["name"].setFocus()
    QTest.keyClick(page.form.editors["name"], Qt.Key.Key_Return)
    assert page.form.editors["command"].hasFocus()
    assert of(fed, Submit) == []
