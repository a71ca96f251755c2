"""The assistant's process beside a real daemon: answers, writers, cancellation and its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import torch

from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.client import Assistant, OnEvent, socket_path
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.engine.prompts import MAX_CHAT_CHARACTERS, chat_request
from gpudeck.assistant.host_protocol import Chunk, CompletionRequest, Event, Waiting
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.query.request import Query
from gpudeck.language.words import words
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.processes import ProcessTable
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.protocol.snapshot import Busy
from gpudeck.scheduler.protocol.wire import Connection
from tests.support import eventually
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, vocabulary_file, write_hf

pytestmark = pytest.mark.xdist_group("rwkv")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Start a daemon, and end it and the assistant afterwards."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(folder))
        with Client() as daemon:
            try:
                daemon.configure(
                    source="cpu", model_folder=TEMPLATE, idle_dwell_s=300.0
                )  # longer than these tests take: never idle
                yield folder
            finally:
                daemon.stop_daemon()
        gone()


def gone(seconds: float = 20.0) -> None:
    """Wait until no assistant answers."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            Connection(socket_path()).close()
        except DaemonGone:
            return
        time.sleep(0.02)
    pytest.fail("the assistant is still there")


@pytest.fixture
def no_model(home):
    yield
    with Client(start=False) as daemon:
        daemon.configure(model_folder=TEMPLATE)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    """Write a random model with the whole World vocabulary; its texts are noise."""
    folder = tmp_path_factory.mktemp("models") / "noise-7"
    write_hf(folder, to_hf(random_model(layers=1, channels=64, vocabulary=65536)))
    shutil.copy(vocabulary_file(), folder)
    return folder


def configure(**changes: str) -> None:
    with Client(start=False) as daemon:
        daemon.configure(**changes)


def test_it_starts_on_demand_and_answers_from_readings_without_torch(home) -> None:
    events: list[Event] = []
    answer = Assistant().ask("how much memory is used?", on_event=events.append)
    assert answer.role == "answer"
    assert answer.writer == "template"
    assert "iB" in answer.text
    assert {fact.name for fact in answer.facts} >= {"cpu.mem_used"}
    assert "".join(e.text for e in events if isinstance(e, Chunk)) == answer.text
    assert "libtorch" not in Path(f"/proc/{holder()}/maps").read_text()
    assert ProcessTable().describe({holder(): None})[0].assistant, (
        "the daemon knows it among the processes of a GPU"
    )
    assert not ProcessTable().describe({os.getpid(): None})[0].assistant


def holder() -> int:
    """Return the PID of the assistant, which holds the lock."""
    inode = (paths.home() / "assistant.lock").stat().st_ino
    found = [
        line.split()[4]
        for line in Path("/proc/locks").read_text().splitlines()
        if line.split()[5].endswith(f":{inode}")
    ]
    return int(found[0])


def test_a_report_on_a_job_says_how_it_ended(home) -> None:
    with Client() as daemon:
        done = daemon.wait(
            daemon.submit([sys.executable, "-c", "print('hi')"], name="greet *all*").id, timeout=30
        )
        failed = daemon.wait(
            daemon.submit([sys.executable, "-c", "raise SystemExit(3)"], name="bad").id, timeout=30
        )
    answer = Assistant().report(job=done.id)
    assert answer.role == "report"
    assert f"Job {done.id}: greet \\*all\\*" in answer.text
    assert "It is done. It ran for " in answer.text
    assert "1 job failed or was lost" in Assistant().ask("did anything fail?").text
    assert f"Job {failed.id}" in Assistant().ask("what happened today?").text


def test_a_summary_of_a_time_names_the_time_once(home) -> None:
    yesterday = datetime.now() - timedelta(days=1)
    text = Assistant().ask("what happened yesterday?").text
    assert text.startswith(f"### {words('en').date(yesterday.timestamp())}\n")
    assert text.count(f" {yesterday.year}") == 1
    assert "- There are no jobs.\n- There are no alerts." in text
    assert "energy" not in text, "nothing was read yesterday"


def test_a_report_of_the_template_does_not_wait_for_idle_devices(home) -> None:
    heard: list[Event] = []
    answer = Assistant().report(on_event=heard.append)
    assert answer.report is not None and answer.writer == "template"
    with Client() as daemon:
        assert all(isinstance(state.use, Busy) for state in daemon.snapshot().devices)
    assert not [e for e in heard if isinstance(e, Waiting) and "idle" in str(e.reason)]


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ("write a weekly report", 7),
        ("rapport hebdo", 7),
        ("Erstellen Sie mir bitte einen Monatsbericht.", 30),
        ("write a report", 1),
    ],
)
def test_a_report_covers_the_time_that_it_is_asked_for(home, asked: str, days: int) -> None:
    report = Assistant().ask(asked).report
    assert report is not None
    assert report.until - report.since == pytest.approx(days * 86400.0, abs=2.0)


def test_a_report_of_yesterday_ends_at_midnight(home) -> None:
    report = Assistant().ask("write a report of yesterday").report
    midnight = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    assert report is not None and (report.kind, report.until) == ("daily", midnight)


def test_a_job_that_does_not_exist(home) -> None:
    with pytest.raises(NotFound):
        Assistant().report(job=4711)
    assert "There is no job 4711" in Assistant().ask("what about job 4711?").text


def test_a_question_is_answered_while_another_waits_for_idle_devices(home) -> None:
    assistant, waits = Assistant(), threading.Event()
    reasons: list[str] = []
    ended = threading.Event()

    def on_event(event: Event) -> None:
        assert isinstance(event, Waiting)
        reasons.append(str(event.reason))
        if "idle" in str(event.reason):
            waits.set()

    def brief() -> None:
        with pytest.raises(Cancelled):
            assistant.ask("what happened?", "idle", on_event)
        ended.set()

    first = threading.Thread(target=brief)
    first.start()
    assert waits.wait(20)
    assert "busy" in Assistant().ask("is it idle?").text
    assert not ended.is_set()
    state = assistant.status()
    assert (state.answering, state.waiting) == (1, 0)
    assert assistant.cancel()
    first.join(20)
    assert ended.is_set()
    assert any("AMD" in r or "CPU" in r or "quiet" in r or "utilisation" in r for r in reasons)
    eventually(lambda: not assistant.cancel())


def test_a_benchmark_works_alone_and_is_cancelled_at_once_while_it_waits(
    home, model_folder
) -> None:
    first, second = Assistant(), Assistant()
    waits, behind = threading.Event(), threading.Event()
    ended: list[str] = []

    def run(work: Callable[[OnEvent], object], word: str, event: threading.Event) -> None:
        with pytest.raises(Cancelled):
            work(lambda e: event.set() if word in str(getattr(e, "reason", "")) else None)
        ended.append(word)

    report = threading.Thread(
        target=run, args=(lambda e: first.ask("what happened?", "idle", e), "idle", waits)
    )
    report.start()
    assert waits.wait(20)
    benchmark = threading.Thread(
        target=run,
        args=(lambda e: second.benchmark(str(model_folder), on_event=e), "other", behind),
    )
    benchmark.start()
    assert behind.wait(20)
    eventually(lambda: second.status().waiting == 1)
    assert second.cancel()
    benchmark.join(20)
    assert ended == ["other"], "the one before it is not waited for"
    assert "busy" in Assistant().ask("is it idle?").text, "the turn was handed on"
    assert first.cancel()
    report.join(20)


def test_a_person_is_answered_before_the_programs_that_came_first(
    home, model_folder, no_model
) -> None:
    """Eight long answers of programs are written as one batch; a chat pauses them."""
    configure(model_folder=str(model_folder))
    counts, order = [0] * 8, list[str]()
    programs = [Assistant() for _ in counts]

    def program(number: int) -> None:
        def on_event(event: Event) -> None:
            if isinstance(event, Chunk):
                counts[number] += 1
                order.append("program")

        wanted = Wanted(Sampling(seed=number), 8000, prompt="x", ignore_end=True, program=True)
        with suppress(Cancelled):
            programs[number].complete(CompletionRequest(wanted), on_event)

    threads = [threading.Thread(target=program, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: min(counts) > 1, 60.0)
    assert programs[0].status().waiting == 0
    heard: list[Event] = []
    person = CompletionRequest(Wanted(limit=40, prompt="Once", ignore_end=True))
    order.clear()
    done = Assistant().complete(
        person,
        lambda e: (heard.append(e), order.append("person") if isinstance(e, Chunk) else None),
    )
    assert done.tokens == 40
    assert "noise" not in Assistant().ask("is it idle?").writer
    after = list(counts)
    eventually(lambda: all(now > then for now, then in zip(counts, after, strict=True)), 60.0)
    first, last = order.index("person"), len(order) - 1 - order[::-1].index("person")
    between = order[first:last].count("program")
    # Pieces on their way are read late on a busy machine; without a pause there were 8 a token.
    assert between <= done.tokens
    for assistant in programs:
        assistant.cancel()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_an_answer_that_waits_goes_on_with_the_cpu_when_asked_to(home) -> None:
    assistant = Assistant()
    told: list[bool] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Waiting) and event.cpu:
            told.append(assistant.use_cpu())

    assert assistant.ask("what happened?", "idle", on_event).writer == "template"
    assert told == [True]
    assert not assistant.use_cpu(), "there is nothing left that waits"


def test_a_completion_needs_a_model_and_stops_at_a_stop_text(home, model_folder, no_model) -> None:
    with pytest.raises(UserError, match="only the template is in use"):
        Assistant().complete(CompletionRequest(Wanted(prompt="Once")))
    configure(model_folder=str(model_folder))
    heard: list[Event] = []
    wanted = Wanted(Sampling(seed=3), 12, prompt="Once upon a time")
    done = Assistant().complete(CompletionRequest(wanted), heard.append)
    assert (done.model, done.device, done.reason, done.tokens) == ("noise-7", "cpu", "length", 12)
    text = "".join(e.text for e in heard if isinstance(e, Chunk))
    again: list[Event] = []
    stopping = msgspec.structs.replace(wanted, stops=(text[3:6],))
    Assistant().complete(CompletionRequest(stopping), again.append)
    assert "".join(e.text for e in again if isinstance(e, Chunk)) == text[: text.index(text[3:6])]


def test_a_killed_client_blocks_nobody(home) -> None:
    code = (
        "from gpudeck.assistant.client import Assistant\n"
        "Assistant().ask('what happened?', 'idle', lambda e: print(e, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "idle" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGKILL)
    assert Assistant().ask("is it idle?").text.startswith("CPU is ")


def test_wake_loads_the_model_and_cancel_does_not_wait_for_that(
    tmp_path, monkeypatch, model_folder
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    settings.save(Settings(source="cpu", model_folder=str(model_folder)))
    assistant = Assistant()
    assistant.wake()
    with pytest.raises(Cancelled):
        assistant.ask("how busy is the CPU?", on_event=lambda event: assistant.cancel())
    assert eventually(lambda: assistant.status().model, 60) == "noise-7", (
        "although no request waits for it"
    )
    with Client(start=False) as daemon:
        daemon.stop_daemon()
    gone()


def test_the_encoder_reads_requests_beside_any_model(home, model_folder, no_model) -> None:
    for folder in (str(model_folder), TEMPLATE):
        configure(model_folder=folder)
        asked = Assistant().ask("what is the power draw of my cards right now?")
        assert asked.routed == "model request-reader"
        assert isinstance(asked.call, Query) and asked.call.measure == "power"


def test_a_model_that_is_writing_is_cancelled(home, model_folder, no_model) -> None:
    configure(model_folder=str(model_folder))
    assistant = Assistant()
    works = threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Chunk):
            works.set()

    caught: list[BaseException] = []

    def ask() -> None:
        try:
            wanted = Wanted(limit=8000, prompt="What happened?", ignore_end=True)
            assistant.complete(CompletionRequest(wanted), on_event)
        except Cancelled as e:
            caught.append(e)

    thread = threading.Thread(target=ask)
    thread.start()
    assert works.wait(30)
    assert assistant.cancel()
    thread.join(20)
    assert caught


@pytest.mark.parametrize("problem", ["missing", "truncated", "code"])
def test_if_a_model_does_not_load_the_template_answers_and_says_why(
    home, model_folder, no_model, tmp_path, problem
) -> None:
    folder = tmp_path / "broken"
    if problem != "missing":
        folder.mkdir()
        shutil.copy(vocabulary_file(), folder)
    if problem == "truncated":
        (folder / "model.safetensors").write_bytes(
            (model_folder / "model.safetensors").read_bytes()[:5000]
        )
    if problem == "code":
        torch.save({"x": os.getcwd}, folder / "m.pth")
    configure(model_folder=str(folder))
    answer = Assistant().report()
    assert answer.writer == "template"
    line = answer.text.split("Written from the template: ")[1]
    assert {
        "missing": "broken",
        "truncated": "truncated or damaged",
        "code": "numbers of several types",
    }[problem] in line


def test_an_unused_process_ends(home, tmp_path) -> None:
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from gpudeck.assistant.host.server import AssistantServer\n"
        "from gpudeck.scheduler.protocol import wire\n"
        "async def run():\n"
        "    return await AssistantServer(unused_s=0.2).run(wire.listen(Path(sys.argv[1])))\n"
        "print(asyncio.run(run()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.sock")],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stderr.startswith("unused for")


def test_only_one_process_runs_however_often_it_is_started(home) -> None:
    Assistant().ask("is it idle?")
    pid = holder()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gpudeck.assistant.host"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "ready\n"
    Assistant().ask("is it idle?")
    assert holder() == pid


def test_an_unknown_request_gets_an_error_and_does_no_harm(home) -> None:
    connection = Connection(socket_path())
    connection.send(b'{"type": "dance"}')
    assert b"does not know this request" in connection.receive()
    connection.close()
    assert Assistant().ask("is it idle?").text


@pytest.mark.parametrize("text", ["\ud800", os.fsdecode(b"gpu \xff?")])
def test_a_request_that_is_not_utf_8_is_refused_before_a_process_starts(
    tmp_path, monkeypatch, text
) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    with pytest.raises(UserError, match="not UTF-8"):
        Assistant().ask(text)
    assert not socket_path().exists()


def test_a_client_without_start_starts_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(DaemonGone, match="is not running"):
        Assistant(start=False).ask("is it idle?")
    assert not (tmp_path / "elsewhere").exists()


def test_it_ends_with_the_daemon_and_logs_that(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    settings.save(Settings(source="cpu", model_folder=TEMPLATE))
    Assistant().ask("is it idle?")
    with Client(start=False) as daemon:
        daemon.stop_daemon()
    gone()
    end = time.monotonic() + 10
    while (
        "ends: the daemon is gone" not in (tmp_path / "assistant.log").read_text()
        and time.monotonic() < end
    ):
        time.sleep(0.02)
    assert "ends: the daemon is gone" in (tmp_path / "assistant.log").read_text()


def test_a_benchmark_measures_a_model_and_can_be_cancelled(home, model_folder) -> None:
    assistant, told = Assistant(), []
    speed = assistant.benchmark(str(model_folder), on_event=told.append)
    assert (speed.model, speed.device) == ("noise-7", "cpu")
    assert 0 < speed.decode.low <= speed.decode.median <= speed.decode.high
    assert 0 < speed.prefill.low <= speed.prefill.high
    assert {
        "loading the model",
        "timing decoding, round 1 of 5",
        "timing prefill, round 5 of 5",
    } <= {str(e.reason) for e in told}
    with pytest.raises(Cancelled):
        assistant.benchmark(str(model_folder), on_event=lambda event: assistant.cancel())
    with pytest.raises(UserError, match="no model at"):
        assistant.benchmark("/nowhere")


def test_a_free_chat_reads_the_conversation_and_stops_before_the_next_turn(
    home, model_folder, no_model
) -> None:
    asked, left_out = chat_request(("hello\r\n\r\nthere", "hi", "and now?"))
    assert [m["role"] for m in asked.wanted.messages] == ["system", "user", "assistant", "user"]
    assert left_out == 0
    long, left_out = chat_request(("x" * MAX_CHAT_CHARACTERS, "y", "and now?"))
    assert left_out == 2
    assert [m["content"] for m in long.wanted.messages[1:]] == ["and now?"]
    configure(model_folder=str(model_folder))
    few = msgspec.structs.replace(asked.wanted, limit=8)
    done = Assistant().complete(CompletionRequest(few))
    assert (done.model, done.device) == ("noise-7", "cpu")
    assert done.tokens <= 8
