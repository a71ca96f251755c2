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
from pathlib import Path

import msgspec
import pytest
import torch

from assistant.client import Assistant, OnEvent, socket_path
from assistant.engine.prompts import MAX_CHAT_CHARACTERS, chat_request
from assistant.idle import Cancelled
from assistant.messages import Chunk, CompletionRequest, Event, Waiting
from assistant.query.request import Query
from scheduler.client import Client
from scheduler.devices.processes import ProcessTable
from scheduler.protocol import paths, settings
from scheduler.protocol.errors import DaemonGone, NotFound, UserError
from scheduler.protocol.settings import TEMPLATE, Settings
from scheduler.protocol.wire import Connection
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
    assert "GiB" in answer.text
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
    answer = Assistant().report(job=done.id, when="now")
    assert answer.role == "report"
    assert f"Job {done.id}: greet \\*all\\*" in answer.text
    assert "It is done. It ran for " in answer.text
    assert "1 job failed or was lost" in Assistant().ask("did anything fail?").text
    assert f"Job {failed.id}" in Assistant().ask("what happened?").text


def test_a_job_that_does_not_exist(home) -> None:
    with pytest.raises(NotFound):
        Assistant().report(job=4711, when="now")
    assert "There is no job 4711" in Assistant().ask("what about job 4711?").text


def test_a_report_waits_for_idle_devices_and_is_cancelled_while_another_request_waits(
    home,
) -> None:
    assistant, other = Assistant(), Assistant()
    waits, second_waits, ended = threading.Event(), threading.Event(), threading.Event()
    reasons: list[str] = []

    def on_event(event: Event) -> None:
        assert isinstance(event, Waiting)
        reasons.append(event.reason)
        if "idle" in event.reason:
            waits.set()

    def brief() -> None:
        with pytest.raises(Cancelled):
            assistant.report(when="idle", on_event=on_event)
        ended.set()

    answers: list[str] = []

    def ask() -> None:
        answers.append(
            other.ask(
                "is it idle?",
                on_event=lambda e: (
                    second_waits.set() if "another" in getattr(e, "reason", "") else None
                ),
            ).text
        )

    first = threading.Thread(target=brief)
    first.start()
    assert waits.wait(20)
    second = threading.Thread(target=ask)
    second.start()
    assert second_waits.wait(20)
    state = other.status()
    assert (state.answering, state.waiting) == (True, 1)
    assert assistant.cancel()
    first.join(20)
    second.join(20)
    assert ended.is_set()
    assert "busy" in answers[0]
    assert any("AMD" in r or "CPU" in r or "quiet" in r or "utilisation" in r for r in reasons)
    assert not assistant.cancel(), "there is nothing left to cancel"


def test_a_request_that_waits_for_another_is_cancelled_at_once(home) -> None:
    first, second = Assistant(), Assistant()
    waits, behind = threading.Event(), threading.Event()
    ended: list[str] = []

    def run(assistant: Assistant, word: str, event: threading.Event) -> None:
        with pytest.raises(Cancelled):
            assistant.report(
                when="idle",
                on_event=lambda e: event.set() if word in getattr(e, "reason", "") else None,
            )
        ended.append(word)

    threads = [
        threading.Thread(target=run, args=(first, "idle", waits)),
        threading.Thread(target=run, args=(second, "another", behind)),
    ]
    threads[0].start()
    assert waits.wait(20)
    threads[1].start()
    assert behind.wait(20)
    assert second.cancel()
    threads[1].join(20)
    assert ended == ["another"], "the one before it is not waited for"
    assert first.cancel()
    threads[0].join(20)
    assert "busy" in Assistant().ask("is it idle?").text, "the turn was handed on"


def test_requests_of_people_go_before_requests_of_programs(home) -> None:
    first, second = Assistant(), Assistant()
    threads: list[threading.Thread] = []

    def begin(work: Callable[[OnEvent], object], waits: str) -> list[str]:
        """Send a request in a thread until it waits for this; return its reasons."""
        reasons: list[str] = []

        def run() -> None:
            with suppress(Cancelled, UserError):
                work(lambda event: reasons.append(event.reason))

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        eventually(lambda: any(waits in reason for reason in reasons))
        return reasons

    begin(lambda on_event: first.report(on_event=on_event), "idle")
    for _ in range(2):
        begin(
            lambda on_event: Assistant().complete(CompletionRequest("x", program=True), on_event),
            "another",
        )
    reasons = begin(lambda on_event: second.report(on_event=on_event), "another")
    assert first.cancel()
    eventually(lambda: any("idle" in reason for reason in reasons))
    waiting = first.status().waiting
    assert second.cancel()
    assert waiting == 2, "the programs do still"
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_a_report_that_waits_goes_on_with_the_cpu_when_asked_to(home) -> None:
    assistant = Assistant()
    told: list[bool] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Waiting) and event.cpu:
            told.append(assistant.use_cpu())

    assert assistant.report(when="idle", on_event=on_event).writer == "template"
    assert told == [True]
    assert not assistant.use_cpu(), "there is nothing left that waits"


def test_a_completion_needs_a_model_and_stops_at_a_stop_text(home, model_folder, no_model) -> None:
    with pytest.raises(UserError, match="only the template is in use"):
        Assistant().complete(CompletionRequest("Once"))
    configure(model_folder=str(model_folder))
    heard: list[Event] = []
    done = Assistant().complete(
        CompletionRequest("Once upon a time", limit=12, temperature=1.0, seed=3), heard.append
    )
    assert (done.model, done.device, done.reason, done.tokens) == ("noise-7", "cpu", "length", 12)
    text = "".join(e.text for e in heard if isinstance(e, Chunk))
    again: list[Event] = []
    Assistant().complete(
        CompletionRequest("Once upon a time", limit=12, temperature=1.0, seed=3, stop=(text[3:6],)),
        again.append,
    )
    assert "".join(e.text for e in again if isinstance(e, Chunk)) == text[: text.index(text[3:6])]


def test_a_killed_client_does_not_block_the_queue(home) -> None:
    code = (
        "from assistant.client import Assistant\n"
        "Assistant().report(when='idle', on_event=lambda e: print(e, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "idle" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGKILL)
    # it would wait for ever behind the report
    assert Assistant().ask("is it idle?").text.startswith("Use of CPU: ")


def test_wake_loads_the_model_and_cancel_does_not_wait_for_that(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path))
    settings.save(Settings(source="cpu"))
    assistant = Assistant()
    assistant.wake()
    with pytest.raises(Cancelled):
        assistant.ask("how busy is the CPU?", on_event=lambda event: assistant.cancel())
    assert eventually(lambda: assistant.status().model, 60) == "rwkv7-deck-13m", (
        "although no request waits for it"
    )
    with Client(start=False) as daemon:
        daemon.stop_daemon()
    gone()


def test_the_router_model_reads_requests_beside_any_model(home, model_folder, no_model) -> None:
    for folder in (str(model_folder), TEMPLATE):
        configure(model_folder=folder)
        asked = Assistant().ask("which card is the most thirsty at the moment please")
        assert asked.routed == "model rwkv7-router"
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
            assistant.complete(CompletionRequest("What happened?", 8000), on_event)
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
    answer = Assistant().report(when="now")
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
        "from assistant.host.server import AssistantServer\n"
        "from scheduler.protocol import wire\n"
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
        [sys.executable, "-P", "-m", "assistant.host"],
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
    } <= {e.reason for e in told}
    with pytest.raises(Cancelled):
        assistant.benchmark(str(model_folder), on_event=lambda event: assistant.cancel())
    with pytest.raises(UserError, match="no model at"):
        assistant.benchmark("/nowhere")


def test_a_free_chat_reads_the_conversation_and_stops_before_the_next_turn(
    home, model_folder, no_model
) -> None:
    asked, left_out = chat_request(("hello\r\n\r\nthere", "hi", "and now?"))
    assert asked.prompt.endswith(
        "\n\nUser: hello\nthere\n\nAssistant: hi\n\nUser: and now?\n\nAssistant:"
    )
    assert left_out == 0
    long, left_out = chat_request(("x" * MAX_CHAT_CHARACTERS, "y", "and now?"))
    assert left_out == 2
    assert "x" * 99 not in long.prompt
    configure(model_folder=str(model_folder))
    done = Assistant().complete(msgspec.structs.replace(asked, limit=8))
    assert (done.model, done.device) == ("noise-7", "cpu")
    assert done.tokens <= 8
