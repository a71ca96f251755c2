"""Runs steps on all GPUs of this machine until they are done or the time is up, and keeps
whatever they leave.

Every step is a process group with a folder of its own, which holds its log; it is interrupted
(SIGINT) at its limit, and killed after a grace with all that it started. What ended is noted at
once, and all folders are packed: a killed campaign loses what ran, no more.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.gpu.plan import DONE, Running, State, Step, held_up, next_start, remaining

GRACE_S = 8.0
"""Between SIGINT and SIGKILL."""
WRAP_UP_S = 5.0
"""For packing, at the end."""
PACK, VERDICTS, STATES = "campaign.tar.gz", "verdicts.txt", "states.json"
PART_BYTES = 15 * 2**20
NOT_PACKED = (".npz", ".pt", ".new")
"""Samples and checkpoints: larger than all else together, and made again by a command."""


class Process:
    """A step that runs."""

    def __init__(self, step: Step, gpu: str, work: Path, most: float) -> None:
        self.step, self.began = step, time.monotonic()
        self.stops = self.began + min(step.limit, most)
        self._interrupted = False
        folder = work / step.name
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "log.txt"
        # Short, as sockets lie in it; and whoever has it in the environment belongs to the step.
        self._scratch = tempfile.mkdtemp(prefix="step")
        argv = [
            part.replace("{out}", str(folder)).replace("{work}", str(work)) for part in step.argv
        ]
        ours = {
            "TMPDIR": self._scratch,
            "GPUDECK_HOME": f"{self._scratch}/home",
            "PYTHONUNBUFFERED": "1",
            "QT_QPA_PLATFORM": "offscreen",
            # Torch starts as many threads as there are cores in each of dozens of processes, and
            # these wait for each other by spinning.
            "OMP_NUM_THREADS": "2",
        }
        chosen = {
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            **({} if step.room == "machine" else {"CUDA_VISIBLE_DEVICES": gpu}),
        }
        with self.log.open("ab") as log:
            log.write(f"$ python {' '.join(argv)}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                [sys.executable, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ours, **chosen},
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def stop(self) -> None:
        """Ask it to end; `state` kills it after the grace."""
        self.stops = min(self.stops, time.monotonic())

    def state(self) -> State | None:
        """How it ended; None while it runs. Nothing of it is left then."""
        if (status := self._process.poll()) is None:
            if time.monotonic() > self.stops + GRACE_S:
                self._signal(signal.SIGKILL)
            elif time.monotonic() > self.stops and not self._interrupted:
                self._interrupted = True
                self._signal(signal.SIGINT)
            return None
        for other in psutil.process_iter(["environ"]):
            if (other.info["environ"] or {}).get("TMPDIR") == self._scratch:
                other.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)
        return "passed" if status == 0 else "cut off" if self._interrupted else "failed"

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # it has ended

    def said(self, last: int = 1) -> str:
        """The last lines of its log."""
        with self.log.open("rb") as f:
            f.seek(max(0, self.log.stat().st_size - 4000))
            lines = [
                line.strip()
                for line in f.read().decode(errors="replace").replace("\r", "\n").splitlines()
                if line.strip()
            ]
        return "\n".join(lines[-last:])


class Campaign:
    """Steps, what is known of each, and what runs. `work` gets a folder a step; `out` what is to
    be carried away."""

    def __init__(self, steps: Sequence[Step], work: Path, out: Path, gpus: Sequence[str]) -> None:
        self.steps, self.work, self.out, self.gpus = steps, work, out, gpus
        work.mkdir(parents=True, exist_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        if not (work / STATES).exists():
            unpack(out, work)
        self.notes: dict[str, dict[str, object]] = (
            json.loads(file.read_text()) if (file := work / STATES).exists() else {}
        )
        """Of each step that ended: its state, seconds, GPU and last line."""
        self.running: list[tuple[Process, int]] = []
        self._tried: set[str] = set()
        """In this run: what was cut off has its next chance in another."""

    @property
    def states(self) -> dict[str, State]:
        return {name: note["state"] for name, note in self.notes.items()}  # type: ignore[misc]

    def forget(self, names: Sequence[str]) -> None:
        """These are to be run again."""
        self.notes = {name: note for name, note in self.notes.items() if name not in names}

    def run(self, seconds: float) -> bool:
        """For so long at most; returns whether every step passed that so many GPUs can run."""
        end = time.monotonic() + seconds - GRACE_S - WRAP_UP_S
        shown = 0.0
        try:
            while self._start(end) or self.running:
                if self._reap() or time.monotonic() - shown > 30.0:
                    print(self.table(), flush=True)
                    shown = time.monotonic()
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("interrupted: what runs is stopped", flush=True)
            for process, _ in self.running:
                process.stop()
            while self.running:
                self._reap()
                time.sleep(0.1)
        self._keep()
        return all(
            self.states.get(step.name) == "passed"
            for step in self.steps
            if step.gpus <= len(self.gpus)
        )

    def _start(self, end: float) -> bool:
        """Begin what can begin; whether anything did."""
        now, begun = time.monotonic(), False
        todo = [
            step
            for step in self._todo()
            if not missing(step, len(self.gpus)) and not held_up(step, self.states)
        ]
        while found := next_start(todo, self._plan(now), len(self.gpus), now, end):
            step, gpu = found
            self.running.append((Process(step, self.gpus[gpu], self.work, end - now), gpu))
            self._tried.add(step.name)
            todo.remove(step)
            begun = True
        return begun

    def _todo(self) -> list[Step]:
        gone = [
            step.makes
            for step in self.steps
            if step.makes and not (self.work / step.makes).exists()
        ]
        return [
            step
            for step in remaining(self.steps, self.states, gone)
            if step.name not in self._tried
        ]

    def _plan(self, now: float) -> list[Running]:
        return [Running(p.step, gpu, max(now, p.began + p.step.seconds)) for p, gpu in self.running]

    def _reap(self) -> bool:
        """Note and keep what ended; whether anything did."""
        ended = [
            (process, gpu, state) for process, gpu in self.running if (state := process.state())
        ]
        for process, gpu, state in ended:
            self.notes[process.step.name] = {
                "state": state,
                "seconds": round(process.seconds),
                "gpu": gpu,
                "said": process.said(),
            }
        over = [process for process, _, _ in ended]
        self.running = [(process, gpu) for process, gpu in self.running if process not in over]
        if ended:
            self._keep()
        return bool(ended)

    def _keep(self) -> None:
        (self.work / STATES).write_text(json.dumps(self.notes, indent=1))
        (self.out / VERDICTS).write_text(self.verdicts() + "\n")
        pack(self.work, self.out)

    def table(self) -> str:
        """What runs, and how far all is."""
        done = sum(state in DONE for state in self.states.values())
        head = (
            f"== {time.strftime('%H:%M:%S')}: {done} of {len(self.steps)} steps done,"
            f" {len(self.running)} running"
        )
        rows = [_row(p.step.name, str(gpu), "runs", p.seconds, p.said()) for p, gpu in self.running]
        return "\n".join([head, *rows])

    def verdicts(self) -> str:
        """A line a step, and the end of the log of each that did not pass."""
        rows, tails = [], []
        for step in self.steps:
            if note := self.notes.get(step.name):
                rows.append(
                    _row(
                        step.name,
                        str(note["gpu"]),
                        str(note["state"]),
                        float(str(note["seconds"])),
                        str(note["said"]),
                    )
                )
                if note["state"] != "passed":
                    tails.append(
                        f"---- {step.name}: {step.name}/log.txt in"
                        f" {PACK}\n{_tail(self.work / step.name / 'log.txt')}"
                    )
            else:
                why = (
                    f"needs {', '.join(absent)}"
                    if (absent := missing(step, len(self.gpus)))
                    else held_up(step, self.states)
                )
                rows.append(
                    _row(step.name, "", "not run", 0.0, why or f"takes about {step.seconds:.0f} s")
                )
        return "\n".join([*rows, *tails])


def missing(step: Step, gpus: int) -> list[str]:
    """What it needs and this machine of so many GPUs lacks: packages, and GPUs."""
    absent = [name for name in step.needs if find_spec(name) is None]
    return [*absent, *([f"{step.gpus} GPUs"] if gpus < step.gpus else [])]


def pack(work: Path, out: Path) -> None:
    """All that steps left, as one archive in parts that are small enough to be carried: `cat
    campaign.tar.gz.* | tar xz`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as archive:
        for file in sorted(work.rglob("*")):
            if file.is_file() and not file.is_symlink() and file.suffix not in NOT_PACKED:
                archive.add(file, file.relative_to(work), recursive=False)
    data = packed.getvalue()
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    for number, part in enumerate(parts):
        (out / f"{PACK}.{number}.new").write_bytes(part)
    for number in range(len(parts)):
        (out / f"{PACK}.{number}.new").replace(out / f"{PACK}.{number}")
    for file in out.glob(f"{PACK}.*"):
        if int(file.suffixes[-1][1:]) >= len(parts):
            file.unlink()


def unpack(out: Path, work: Path) -> None:
    """What `pack` left there, if anything."""
    parts = sorted(out.glob(f"{PACK}.?"))
    if parts:
        with tarfile.open(
            fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts)), mode="r:gz"
        ) as archive:
            archive.extractall(work, filter="data")


def _row(name: str, gpu: str, state: str, seconds: float, said: str) -> str:
    return f"{name:28} {gpu:2} {state:8} {seconds:4.0f} s  {said[:80]}"


def _tail(log: Path, characters: int = 500) -> str:
    return log.read_text(errors="replace").rstrip()[-characters:] if log.exists() else ""
