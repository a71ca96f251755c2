"""GPUs that are lost, unplugged, asleep, or without their driver, and processes on them: a real
daemon and probe, NVML from recordings."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from gpudeck.app.cli import main as cli
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Cancelled
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import SLEEP_NOTICE, label
from tests.integration.deck import probe_pid, python, running
from tests.support import eventually, lives

ROOT = Path(__file__).parent.parent.parent


class Edge:
    """What NVML answers from now on."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.say()

    def say(self, **told: object) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(told))
        new.replace(self.file)


class Terminal(io.StringIO):
    """Somebody who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def edge(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    settings.save(Settings(source="nvml", telemetry_hz=10.0))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'integration' / 'edge'}:{ROOT}")
    monkeypatch.setenv("RECORDED_NVML", str(tmp_path / "nvml.json"))
    yield Edge(tmp_path / "nvml.json")


def read(deck: Client, *gpus: int) -> list[str]:
    """Once exactly these GPUs have a reading; what each that has none says."""
    shown = eventually(
        lambda: (
            (s := deck.snapshot()).devices
            and [d.device.index for d in s.devices if d.reading] == list(gpus)
            and s
        )
    )
    return [d.device.note for d in shown.devices if d.reading is None]


def test_gpus_that_are_lost_unplugged_or_without_a_driver_come_back_without_a_restart(
    edge: Edge, home: Path
) -> None:
    edge.say(gpus=2)
    with Client() as deck:
        assert read(deck, 0, 1) == []
        names = [d.device.id for d in deck.snapshot().devices]
        for errors in (
            {
                "nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_GPU_IS_LOST,
                "nvmlDeviceGetName": pynvml.NVML_ERROR_GPU_IS_LOST,
            },
            {
                "nvmlDeviceGetCount": pynvml.NVML_ERROR_UNINITIALIZED,
                "nvmlInit": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            },
            {
                "nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
                "nvmlInit": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            },
        ):
            edge.say(gpus=2, errors=errors)
            read(deck)
            told = deck.snapshot()
            assert [d.device.id for d in told.devices] == names, "placeholders"
            assert len(told.notices) == 1
            assert "\n" not in str(told.notices[0])
            edge.say(gpus=2)
            read(deck, 0, 1)
            assert deck.snapshot().notices == ()
        edge.say(gpus=1)
        read(deck, 0)
        assert len(deck.snapshot().devices) == 1, "one was unplugged"
        edge.say(gpus=2)
        read(deck, 0, 1)


def test_a_probe_that_hangs_in_the_middle_of_a_reading_is_replaced(
    edge: Edge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_SILENCE_S", "2.5")
    with Client() as deck:
        read(deck, 0)
        old = eventually(lambda: probe_pid(home))
        edge.say(hangs="nvmlDeviceGetMemoryInfo")
        eventually(
            lambda: (r := deck.snapshot().devices[0].reading) and time.time() - r.time > 0.6
        )  # it hangs
        with pytest.raises(UserError, match="do not answer at the moment"):
            deck.details()
        edge.say()
        eventually(lambda: probe_pid(home) not in (None, old) and not lives(old))
        read(deck, 0)
        assert deck.details()[0].parts[0].name == "NVLink 0"


def test_a_gpu_is_left_to_sleep_while_nobody_looks_and_woken_by_whoever_does(
    edge: Edge, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.save(Settings(source="nvml", telemetry_hz=10.0, laptop_sleep="on"))
    with Client() as deck:
        read(deck, 0)
        quiet = deck.subscribe(live=False)
        asleep = next(s for s in quiet if SLEEP_NOTICE in s.notices)
        assert asleep.devices[0].reading is None, "and it stays listed"
        eventually(lambda: probe_pid(home) is None)
        assert cli.main(["metrics", "--once"]) == 0
        time.sleep(0.3)
        assert probe_pid(home) is None, "a scraper is nobody who looks"
        with Client() as other:
            live = other.subscribe()
            awake = next(s for s in live if s.devices and s.devices[0].reading)
            assert SLEEP_NOTICE not in awake.notices


def test_readings_are_as_fast_as_somebody_looks(edge: Edge) -> None:
    with Client() as deck, Client() as other:
        read(deck, 0)
        quiet = deck.subscribe(live=False)

        def pauses() -> Iterator[float]:
            last = 0.0
            for snapshot in quiet:
                if (
                    snapshot.devices[0].reading
                    and (now := snapshot.devices[0].reading.time) != last
                ):
                    yield now - last
                    last = now

        assert next(p for p in pauses() if 0.45 < p < 1.0), "nobody looks"
        live = other.subscribe()
        next(live)
        assert next(p for p in pauses() if p < 0.3), "somebody does: ten a second, as set"


@pytest.fixture
def user_of_gpu(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours with a GPU's file open, as far as this machine has one, which does not end
    when it is asked to."""
    node = tmp_path / "dev" / "nvidia0"
    node.parent.mkdir()
    node.touch()
    code = (
        "import signal, sys, time; signal.signal(15, signal.SIG_IGN); f = open(sys.argv[1]);"
        " print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(node), "\x1b[2J"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def listed(deck: Client, pid: int) -> Process:
    return next(p for d in deck.details() for p in d.processes if p.pid == pid)


def test_a_process_is_ended_by_its_pid_and_start_and_no_other(
    edge: Edge,
    user_of_gpu: subprocess.Popen[bytes],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid = user_of_gpu.pid
    edge.say(processes=[[pid, 2**30], [os.getpid(), 2**20], [1, 0]])
    with Client() as deck:
        read(deck, 0)
        shown = listed(deck, pid)
        assert shown.command.isprintable()
        assert shown.memory == 2**30
        reused = Process(pid, shown.name, ticks=shown.ticks + 1)
        for stranger, words in (
            (reused, "is another process now. Nothing was ended"),
            (Process(2**22 + 1, "x", ticks=5), "does not use a GPU any more"),
            (Process(pid, "x"), "is another process now"),
            (listed(deck, os.getpid()), "has no GPU open here"),
        ):
            with pytest.raises(UserError, match=words):
                deck.kill(stranger)
        assert user_of_gpu.poll() is None
        edge.say(processes=[[os.getpid(), 2**20]])
        with pytest.raises(NotFound):
            deck.kill(shown)
        edge.say(processes=[[pid, 2**30]])
        assert cli.main(["processes"]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert f"{pid}" in out
        assert "1.0 GiB" in out
        assert cli.main(["processes", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["processes"][0]["pid"] == pid
        assert cli.main(["kill", str(pid)]) == 2, "nobody can be asked here"
        assert "If you are sure: gpudeck kill --yes" in capsys.readouterr().err
        assert cli.main(["kill", "--yes", str(os.getpid())]) == 1
        assert "does not use a GPU" in capsys.readouterr().err
        monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
        assert cli.main(["kill", str(pid)]) == 1
        asked = capsys.readouterr().err
        assert f"(PID {pid}, " in asked
        assert "was not ended" in asked
        assert user_of_gpu.poll() is None
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        assert cli.main(["kill", str(pid)]) == 0
        assert f"Process {pid}" in capsys.readouterr().out
        assert user_of_gpu.wait(10) == -signal.SIGKILL, "it would not end when asked"


def test_a_process_of_a_job_is_ended_by_cancelling_the_job(edge: Edge) -> None:
    with Client() as deck:
        read(deck, 0)
        job = deck.submit(python("import time; time.sleep(600)"), gpus=1)
        pid = running(deck, job).runner
        child = eventually(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split())[0]
        edge.say(processes=[[int(child), 2**30]])
        eventually(
            lambda: listed(deck, int(child)).job == job.id
        )  # not before it has the job's environment
        deck.kill(listed(deck, int(child)))
        assert isinstance(deck.wait(job.id, 20).state, Cancelled)


def test_jobs_run_on_mig_instances_and_never_on_two_or_on_their_gpu(edge: Edge, home: Path) -> None:
    edge.say(instances=2)
    shows = "import os, time; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    with Client() as deck:
        eventually(lambda: sum(d.reading is not None for d in deck.snapshot().devices) == 3)
        names = {label(d.device): d.device.id for d in deck.snapshot().devices}
        assert [*names] == ["GPU 0", "GPU 0:0", "GPU 0:1"]
        assert names["GPU 0:1"] == "MIG-101"
        jobs = [deck.submit(python(f"{shows}; time.sleep(600)"), gpus=1) for _ in range(2)]
        for job in jobs:
            running(deck, job)
        seen = eventually(
            lambda: (
                len(found := {deck.log(job.id).decode().strip() for job in jobs} - {""}) == 2
                and found
            )
        )
        assert seen == {"MIG-100", "MIG-101"}
        third = deck.submit(python("1"), gpus=1, gpu_type="GPU 0:1")
        assert "GPU 0:1" in str(deck.job(third.id).state.reason)
        with pytest.raises(UserError, match="2 GPUs"):
            deck.submit(python("1"), gpus=2)
        for job in jobs:
            deck.cancel(job.id)
        deck.wait(third.id, 60)
        assert deck.job(third.id).state.devices == ("MIG-101",)


def test_who_used_a_gpu_is_known_after_the_process_and_the_daemon_have_ended(
    edge: Edge, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edge.say(processes=[[os.getpid(), 5 * 2**30]])
    with Client() as deck:
        eventually(lambda: deck.processes(0.0))
        edge.say()
        eventually(lambda: not deck.snapshot().devices[0].reading.processes)
        deck.stop_daemon()
    with Client() as deck:
        (found,) = deck.processes(0.0)
        assert (found.use.pid, found.memory, found.use.job) == (os.getpid(), 5 * 2**30, None)
        curve = deck.history(found.use.key, ("mem_used",), 0.0)
        assert max(v for v in curve.columns["mem_used"] if v is not None) == 5 * 2**30
    assert cli.main(["processes", "--since", "1h"]) == 0
    printed = capsys.readouterr().out
    assert f"{os.getpid()}" in printed and "5.0 GiB" in printed
