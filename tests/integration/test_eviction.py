"""The assistant's place on a GPU: a real daemon, probe, runners and jobs; a GPU and a tenant's
memory played at the hardware's edge."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from gpudeck.accel.rwkv.tokenizer import VOCABULARY
from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.host_protocol import Chunk, CompletionRequest, Event
from gpudeck.assistant.idle import Cancelled
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import QuietHours, Reserved
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.integration.endpoint import serving
from tests.support import eventually, lives, send, state_folder
from tests.unit.accel.rwkv.rwkv_models import random_model, to_hf, write_hf

HERE = Path(__file__).parent / "fake_gpu"
ROOT = Path(__file__).parents[2]
GIB = 2**30
SETTINGS = Settings(source="nvml", idle_dwell_s=0.0, telemetry_hz=10.0)
pytestmark = pytest.mark.xdist_group("rwkv")
LISTS = """
import os, sys
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
print([name for name in os.listdir(sys.argv[1]) if name.isdigit() and lives(name)])
"""
"""A job that prints which processes are on the GPU as it starts; the fake's way to run out of
memory."""


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder that is the GPU of this module's daemon: processes on it have a file
    there."""
    folder = tmp_path_factory.mktemp("gpu")
    with (
        pytest.MonkeyPatch.context() as patch,
        state_folder(tmp_path_factory.mktemp("eviction") / "home"),
    ):
        patch.setenv("FAKE_GPU", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
        settings.save(SETTINGS)
        yield folder


@pytest.fixture
def deck(gpu: Path) -> Iterator[Client]:
    with Client() as client:
        yield ready(client)
    with Client() as client:  # the test may have killed the daemon
        configure(client, **msgspec.structs.asdict(SETTINGS))


def state(deck: Client) -> DeviceState:
    (found,) = deck.snapshot().devices
    return found


def configure(deck: Client, **changes: str | float) -> None:
    """Change settings, and wait for a reading that was taken since."""
    now = time.time()
    deck.configure(**changes)
    eventually(
        lambda: all(d.reading is not None and d.reading.time > now for d in deck.snapshot().devices)
    )


@contextmanager
def tenant(deck: Client, gpu: Path, manner: str = "obeys") -> Iterator[subprocess.Popen[str]]:
    """Start a process that has a lease and memory on the GPU."""
    if manner != "insists":
        eventually(lambda: isinstance(state(deck).use, Idle))
    environment = {**os.environ, ASSISTANT_MARK: "1"}
    command = [sys.executable, str(HERE / "tenant.py"), str(gpu), manner]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("leased GPU-")
            yield process
        finally:
            send(process.pid, signal.SIGCONT)
            process.kill()


def alone(gpu: Path, job: Job) -> bool:
    """Return True where the job found no process on the GPU."""
    return log_of(job) == "[]\n"


@pytest.mark.parametrize("manner", ["obeys", "ignores", "is stopped"])
@pytest.mark.parametrize("memory", ["", "78GiB"], ids=["alone", "shared"])
def test_a_job_evicts_the_assistant_and_starts_when_it_is_gone(
    deck: Client, gpu: Path, manner: str, memory: str
) -> None:
    with tenant(deck, gpu, manner) as held:
        eventually(lambda: state(deck).reading.processes)  # type: ignore[union-attr]
        assert state(deck).leased
        if manner == "is stopped":
            held.send_signal(signal.SIGSTOP)
        job = deck.submit(python(LISTS, gpu), gpus=1, memory=memory)
        if manner != "obeys":
            running(deck, job)  # its runner is started while the assistant is still there
        assert deck.wait(job.id, 30.0).status == "done"
        assert alone(gpu, job), f"on the GPU when the job started: {log_of(job)}"
        assert held.wait() == (0 if manner == "obeys" else -signal.SIGKILL)
        assert not state(deck).leased


def test_a_job_that_cannot_start_or_needs_no_gpu_does_not_evict_the_assistant(
    deck: Client, gpu: Path
) -> None:
    with tenant(deck, gpu) as held:
        kept = deck.submit(["true"], gpus=1, hold=True)
        deck.set_group("night", paused=True)
        deck.submit(["true"], gpus=1, group="night")
        deck.wait(deck.submit(["true"]).id, 30.0)
        time.sleep(0.3)
        assert lives(held.pid)
        assert isinstance(deck.job(kept.id).state, Queued)
        deck.hold(kept.id, False)
        assert held.wait() == 0
        deck.wait(kept.id, 30.0)
        deck.set_group("night", paused=False)


def test_a_job_cancelled_at_its_gate_never_runs(deck: Client, gpu: Path) -> None:
    with tenant(deck, gpu, "ignores") as held:
        job = deck.submit(python(LISTS, gpu), gpus=1)
        deck.cancel(job.id)
        assert deck.wait(job.id, 30.0).status == "cancelled"
        assert held.wait() == -signal.SIGKILL
    assert log_of(job) == ""
    assert deck.wait(deck.submit(python(LISTS, gpu), gpus=1).id, 30.0).status == "done"


def test_a_job_at_its_gate_runs_once_after_a_crash_of_the_daemon(deck: Client, gpu: Path) -> None:
    with tenant(deck, gpu, "ignores") as held:
        job = deck.submit(python(LISTS, gpu), gpus=1)
        kill_daemon()
        assert lives(held.pid), "nobody is left to kill it"
        with Client() as again:
            assert again.wait(job.id, 30.0).status == "done", (
                "the next daemon ended the assistant that had no lease from it"
            )
        assert held.wait() == -signal.SIGKILL
    assert alone(gpu, job)


@pytest.mark.parametrize("manner", ["obeys", "ignores"])
def test_the_assistant_leaves_for_a_job_of_another_queue(
    deck: Client, gpu: Path, tmp_path: Path, manner: str
) -> None:
    locks = os.environ["GPUDECK_GPU_LOCKS"]
    with (
        tenant(deck, gpu, manner) as held,
        state_folder(tmp_path / "other"),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("GPUDECK_GPU_LOCKS", locks)
        settings.save(SETTINGS)
        with Client() as other:
            eventually(lambda: ready(other).snapshot().devices[0].reading)
            time.sleep(0.5)  # over several looks of both daemons
            assert lives(held.pid), "it is no stray of the other queue, and nobody needs the GPU"
            job = other.submit(python(LISTS, gpu), gpus=1)
            assert other.wait(job.id, 30.0).status == "done"
            assert alone(gpu, job), f"on the GPU when the job started: {log_of(job)}"
            assert held.wait() == (0 if manner == "obeys" else -signal.SIGKILL)
            other.stop_daemon()
    eventually(lambda: not state(deck).leased)


def test_a_lease_ends_with_its_process(deck: Client, gpu: Path) -> None:
    with tenant(deck, gpu) as held:
        held.kill()
        eventually(lambda: not state(deck).leased)
    with tenant(deck, gpu), pytest.raises(UserError, match="has a GPU already"):
        deck.lease()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random model whose tokens are bytes."""
    folder = write_hf(
        tmp_path_factory.mktemp("models") / "noise-7",
        to_hf(random_model(layers=1, channels=64, vocabulary=300)),
    )
    (folder / VOCABULARY).write_text("".join(f"{i + 1} {bytes([i])!r} 1\n" for i in range(256)))
    return folder


@pytest.fixture
def model(deck: Client, gpu: Path, model_folder: Path) -> Iterator[None]:
    """Give the assistant a model for the idle GPU, and wait at the end until it has left."""
    configure(deck, model_folder=str(model_folder), model_device="cuda")
    eventually(lambda: isinstance(state(deck).use, Idle))
    yield
    deck.configure(model_idle_minutes=0.001)
    eventually(lambda: not on_gpu(gpu) and not state(deck).leased, 60.0)


class Listener:
    """Record the events of a request."""

    def __init__(self) -> None:
        self.text, self.reasons = "", [""]
        self.may_use_cpu = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Chunk):
            self.text += event.text
        else:
            self.reasons.append(str(event.reason))
            self.may_use_cpu = event.cpu


ASKED = CompletionRequest(Wanted(Sampling(seed=7), 80, prompt="Once upon a time", ignore_end=True))


@contextmanager
def ending(assistant: Assistant) -> Iterator[None]:
    """Cancel an answer that a failed test left behind."""
    try:
        yield
    finally:
        assistant.cancel()


def on_gpu(gpu: Path) -> int:
    """Return the pid of the assistant on the GPU, or 0."""
    return next((int(f.name) for f in gpu.iterdir() if f.name.isdigit() and lives(int(f.name))), 0)


@pytest.mark.parametrize(
    "goes_on", ["on the GPU", pytest.param("on the CPU", marks=pytest.mark.slow)]
)
def test_an_evicted_text_is_continued_later_and_has_the_same_words(
    deck: Client, gpu: Path, model: None, tmp_path: Path, goes_on: str
) -> None:
    assistant, heard, whole = Assistant(), Listener(), Listener()
    go = tmp_path / "go"
    assert assistant.complete(ASKED, whole).device == "cuda"
    with ThreadPoolExecutor(1) as pool, ending(assistant):
        asked = pool.submit(assistant.complete, ASKED, heard)
        eventually(lambda: len(heard.text) > 5)
        pid = on_gpu(gpu)
        job = deck.submit(
            python(
                f"{LISTS}\nimport time\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)",
                gpu,
                go,
            ),
            gpus=1,
        )
        eventually(lambda: not lives(pid))
        eventually(lambda: heard.may_use_cpu and f"job {job.id} " in heard.reasons[-1])
        assert len(heard.text) < 80
        (kept,) = (paths.home() / "unfinished").glob("*/tokens")
        assert kept.stat().st_size, "the next process begins where this one was"
        if goes_on == "on the CPU":
            assistant.use_cpu()
            assert asked.result(60.0).device == "cpu"
        go.touch()
        done = asked.result(60.0)
    assert deck.wait(job.id, 30.0).status == "done"
    assert alone(gpu, job)
    assert (done.reason, done.tokens) == ("length", 80)
    if goes_on == "on the GPU":
        assert done.device == "cuda"
        assert heard.text == whole.text, "as if nothing had come between"
        configure(deck, model_idle_minutes=0.001)
        eventually(
            lambda: not on_gpu(gpu) and not state(deck).leased
        )  # nothing of it stays where nobody asks any more


@pytest.mark.slow
def test_a_text_is_the_same_though_its_process_is_killed_repeatedly(
    deck: Client, gpu: Path, model: None
) -> None:
    random, heard, killed = Random(3), Listener(), 0
    whole = Listener()
    long = CompletionRequest(msgspec.structs.replace(ASKED.wanted, limit=400))
    expected = Assistant().complete(long, whole).tokens
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Assistant().complete, long, heard)
        while not asked.done():
            told = len(heard.text)
            goal = told + random.randrange(1, 40)
            eventually(lambda goal=goal: asked.done() or len(heard.text) >= goal, 60.0)
            if pid := on_gpu(gpu):
                send(pid, signal.SIGKILL)
                killed += 1
        assert asked.result().tokens == expected
    assert heard.text == whole.text
    assert killed > 2
    # A kill after the last word, and before its journal is gone, leaves that for a day: nobody asks
    # for it again.
    shutil.rmtree(paths.home() / "unfinished", ignore_errors=True)


@pytest.mark.slow
def test_a_report_is_continued_from_its_tokens_and_facts_after_a_kill(
    deck: Client, gpu: Path, model: None
) -> None:
    before: list[tuple[bytes, bytes]] = []
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(Assistant().report)
        for more in (
            40,
            300,
            600,
        ):  # bytes of tokens: at the beginning of the answer, and in later sentences
            eventually(lambda more=more: asked.done() or len(unfinished()[0]) > more, 60.0)
            assert not asked.done()
            pid = eventually(lambda: on_gpu(gpu), 60.0)
            send(pid, signal.SIGKILL)
            eventually(lambda pid=pid: not lives(pid))
            before.append(unfinished())
        eventually(lambda: len(unfinished()[0]) > len(before[-1][0]) + 8 or asked.done(), 60.0)
        tokens, kept = unfinished()
        answer = asked.result(60.0)
    assert all(tokens.startswith(earlier) for earlier, _ in before), (
        "nothing that was written is written in another way"
    )
    assert before[1][1] == before[2][1] == kept
    assert "the text of the model noise-7 was refused" in answer.text
    eventually(lambda: not list((paths.home() / "unfinished").iterdir()))


def test_a_report_that_a_model_writes_waits_for_its_gpu_and_says_so(
    deck: Client, gpu: Path, model: None, tmp_path: Path
) -> None:
    assistant, heard, go = Assistant(), Listener(), tmp_path / "go"
    waits = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    job = deck.submit(python(waits, go), gpus=1)
    running(deck, job)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(assistant.report, on_event=heard)
        eventually(lambda: heard.may_use_cpu and f"job {job.id}" in heard.reasons[-1], 60.0)
        assert heard.reasons[-1].startswith("waiting for the GPU (")
        assistant.cancel()
        with pytest.raises(Cancelled):
            asked.result(30.0)
    go.touch()
    deck.wait(job.id, 30.0)


def unfinished() -> tuple[bytes, bytes]:
    """Return tokens and facts of the only request."""
    folder = next((paths.home() / "unfinished").glob("*"), Path("/nowhere"))
    return tuple(
        (folder / name).read_bytes() if (folder / name).exists() else b""
        for name in ("tokens", "kept")
    )  # type: ignore[return-value]


@pytest.mark.slow
def test_the_endpoint_waits_for_the_gpu_or_uses_the_cpu(
    deck: Client, gpu: Path, model: None, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    job = deck.submit(
        python("import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)", go),
        gpus=1,
    )
    eventually(lambda: isinstance(deck.job(job.id).state, Running))
    asked = {"model": "noise-7", "prompt": "Once", "max_tokens": 5, "seed": 2}
    with serving(paths.home(), "--patience", "1") as served:
        status, headers, refused = served.ask("/v1/completions", asked)
        assert (status, refused["error"]["code"], headers["retry-after"]) == (503, "gpu_busy", "5")
        assert f"job {job.id} " in refused["error"]["message"]
        status, headers, _ = served.ask("/v1/completions", asked, **{"X-GPUDeck-Device": "cpu"})
        assert (status, headers["x-gpudeck-device"]) == (200, "cpu")
        go.touch()
        assert deck.wait(job.id, 30.0).status == "done"
        eventually(lambda: isinstance(state(deck).use, Idle))
        status, headers, told = served.ask("/v1/completions", asked)
        assert (status, headers["x-gpudeck-device"], told["system_fingerprint"]) == (
            200,
            "cuda",
            "gpudeck-cuda",
        )
        assert served.ask("/v1/completions", asked, **{"X-GPUDeck-Device": "tpu"})[0] == 400


@contextmanager
def program(name: Path) -> Iterator[int]:
    """Start a process with this name that belongs to no job, and return its pid."""
    name.symlink_to("/bin/sleep")
    with subprocess.Popen([name, "600"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def computes(gpu: Path, pid: int) -> None:
    (gpu / str(pid)).write_text(str(GIB))


def draws(gpu: Path, pid: int) -> None:
    (gpu / "drawing").write_text(str(pid))


@pytest.mark.parametrize(
    ("use", "why"), [(computes, "1 process of others"), (draws, "blender runs")]
)
def test_the_assistant_leaves_for_other_processes_even_if_readings_are_rare(
    deck: Client, gpu: Path, tmp_path: Path, use: Callable[[Path, int], None], why: str
) -> None:
    configure(deck, exclusive_programs="game, blender", telemetry_hz=0.1)
    with tenant(deck, gpu) as held, program(tmp_path / "blender") as other:
        came = time.time()
        use(gpu, other)
        assert held.stdout is not None
        assert why in held.stdout.readline()
        reading = state(deck).reading
        assert reading is not None and reading.time < came, "before the next reading"
        assert held.wait() == 0


def test_quiet_hours_end_the_lease_and_the_next_wait_is_longer(deck: Client, gpu: Path) -> None:
    with tenant(deck, gpu) as held:
        deck.configure(idle_hours_off="00:00-23:59")
        assert held.wait() == 0
    eventually(lambda: not state(deck).leased)
    assert state(deck).use == Busy(QuietHours("00:00-23:59"))
    with pytest.raises(UserError, match="quiet hours, 00:00-23:59"):
        deck.lease()
    deck.configure(idle_hours_off="", idle_dwell_s=100.0)
    asked = eventually(
        lambda: re.search(r"idle in (\d+) s", str(getattr(state(deck).use, "reason", "")))
    )
    assert int(asked[1]) >= 150, "at least twice the dwell time, less what has passed"


def test_a_reservation_ends_the_lease_when_it_begins_and_keeps_the_gpu(
    deck: Client, gpu: Path
) -> None:
    now = time.time()
    with tenant(deck, gpu) as held:
        made = deck.reserve(Booking((state(deck).device.id,), now + 1.0, now + 3600, None, "night"))
        assert held.stdout is not None
        assert "reserved for group night until " in held.stdout.readline()
        assert held.wait() == 0 and time.time() >= now + 1.0
    eventually(lambda: not state(deck).leased)
    with pytest.raises(UserError, match="reserved for group night until "):
        deck.lease()
    deck.cancel_booking(made.number)
    assert not isinstance(getattr(state(deck).use, "cause", None), Reserved)


@pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists(), reason="there may be a GPU, and it would be measured"
)
def test_the_benchmark_reports_a_missing_gpu_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.eviction"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("this measures an NVIDIA GPU, and none can be reached here")
    assert done.stderr.count("\n") == 1


def test_a_refused_lease_says_why(deck: Client, gpu: Path) -> None:
    eventually(lambda: isinstance(state(deck).use, Idle))
    with pytest.raises(UserError, match="not enough memory is free"):
        deck.lease(100 * GIB)
    deck.configure(source="cpu")
    eventually(lambda: str(deck.snapshot().source).startswith("cpu"))
    with pytest.raises(UserError, match="no NVIDIA GPU is watched here"):
        deck.lease()
