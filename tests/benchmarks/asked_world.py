"""Build the world in which requests of blind sets are asked: eight H100 on a recording, 18 jobs.

Two weeks of readings lie behind it. The jobs are of the users mara, ben and lea, where the machine
has users of these names, and else of whoever asks. Times are relative to now. What runs has real
processes, and the recording's GPUs are entered in the store as theirs, as no job starts on them.
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.trace import ReplaySource
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Done,
    Ended,
    Failed,
    Job,
    Queued,
    Running,
    Spec,
    Usage,
)
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.store.archive import Archive
from gpudeck.scheduler.store.store import Store
from gpudeck.scheduler.telemetry.history_table import DAY, HOUR, HistoryTable
from tests.integration.deck import python
from tests.support import eventually, state_folder

DEVICES, DAYS, ROWS, STEP_S = 8, 14, 600, 30.0
_IDLE = {"util": 0.0, "mem_used": 0.6e9, "power": 72.0, "temp": 31.0, "tflops": 0.0}
_WORK = (
    "import json, time\n"
    "for i in range({done}, 10**6):\n"
    "    print(json.dumps({{'gpudeck': 'progress', 'done': i, 'total': {total}}}), flush=True)\n"
    "    print('step', i, 'loss', round(3.1 - i / 1e5, 4), flush=True)\n"
    "    time.sleep(2)\n"
)


class Past(NamedTuple):
    """Describe a job that has ended."""

    name: str
    user: str
    gpus: tuple[int, ...]
    began: float
    """Hours before now; so is `ended`."""
    ended: float
    end: str
    command: str
    log: str = ""


def past_jobs(now: float) -> tuple[Past, ...]:
    """Return the jobs that have ended; those before today began at a time of the clock."""

    def at(days: int, clock: str) -> float:
        day = datetime.fromtimestamp(now) - timedelta(days=days)
        hour, minute = map(int, clock.split(":"))
        return (now - day.replace(hour=hour, minute=minute, second=0).timestamp()) / 3600

    train = "python train.py --config small.yaml"
    return (
        Past("pretrain-small", "mara", (0, 1, 2, 3), at(13, "20:00"), at(12, "06:30"), "done",
             train, "step 88000 loss 2.41\nsaved checkpoints/small-1.pt\n"),
        Past("tokenize", "mara", (), at(8, "09:10"), at(8, "11:40"), "done", "python tokenize.py"),
        Past("llama-lora", "ben", (5,), at(6, "14:10"), at(6, "14:52"), "failed",
             "python lora.py --batch 32",
             "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB\n"),
        Past("llama-lora", "ben", (5,), at(6, "15:20"), at(6, "21:05"), "done",
             "python lora.py --batch 16", "epoch 3 eval loss 1.12\n"),
        Past("eval-mmlu", "ben", (6,), at(5, "10:00"), at(5, "10:47"), "done",
             "python eval.py --task mmlu", "mmlu 0.613\n"),
        Past("whisper-ft", "lea", (4, 5), at(2, "16:30"), at(2, "17:05"), "cancelled",
             "python finetune.py --model whisper"),
        Past("pretrain-small", "mara", (0, 1, 2, 3), at(1, "02:14"), at(1, "09:40"), "failed",
             train, "step 41200 loss nan\nRuntimeError: loss is NaN at step 41200\n"),
        Past("fetch-shards", "mara", (), 10.9, 10.5, "failed", "python fetch.py --shards 64",
             "OSError: [Errno 28] No space left on device\n"),
        Past("plots", "mara", (), 9.5, 9.47, "done", "python plots.py"),
    )  # fmt: skip


def user(name: str) -> int | None:
    """Return the number of a user, if the machine has one of this name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


@contextmanager
def world(folder: Path) -> Iterator[Client]:
    """Build the world in a folder, and return a client of its daemon; everything ends with it."""
    with state_folder(folder):
        trace = paths.assets() / "h100.trace.gz"
        settings.save(Settings(source=f"replay:{trace}*{DEVICES}", model_folder=TEMPLATE))
        now = time.time()
        past = past_jobs(now)
        _store_past(past, now)
        with Client() as deck:
            eventually(lambda: len(deck.snapshot().devices) == DEVICES)
            started = [deck.submit(python(_WORK.format(done=done, total=total)), name=name).job
                       for name, done, total in (("pretrain-small", 52800, 88000),
                                                 ("clean-text", 350, 1000))]  # fmt: skip
            for job in started:
                eventually(lambda job=job: isinstance(deck.job(job.id).state, Running))
                eventually(lambda job=job: getattr(deck.job(job.id).state, "progress", None))
            deck.stop_daemon()
        _enter_running(started, now)
        _store_waiting(started[0].id, now)
        _fill(past, now)
        with Client() as deck:
            eventually(lambda: sum(bool(s.reading) for s in deck.snapshot().devices) == DEVICES)
            _limit_and_book(deck, now)
            yield deck


def _store_past(past: tuple[Past, ...], now: float) -> None:
    store = Store(paths.store_file())
    for one in past:
        spec = Spec(
            tuple(one.command.split()), one.name, "/", gpus=len(one.gpus), user=user(one.user)
        )
        began, ended = now - one.began * HOUR, now - one.ended * HOUR
        (job,) = store.insert_all([spec], began - 60, Queued())
        devices = tuple(f"REPLAY-{index}" for index in one.gpus)
        used = Usage(ended - began, 60e9, 600.0 * (ended - began) * len(devices), 88.0)
        store.update(msgspec.structs.replace(
            job, state=_ended(one, began, ended, devices), usage=used if devices else None
        ))  # fmt: skip
        folder = paths.job_folder(job.id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log").write_text(one.log or f"{one.name} finished\n", "utf-8")
    store.close()


def _ended(one: Past, began: float, ended: float, devices: tuple[str, ...]) -> Ended:
    if one.end == "failed":
        return Failed(began, ended, "exit code 1", 1, devices)
    if one.end == "cancelled":
        return Cancelled(ended, began, devices)
    return Done(began, ended, devices)


def _enter_running(started: list[Job], now: float) -> None:
    """Enter in the store since when what runs has run, and on which GPUs."""
    store = Store(paths.store_file())
    for job, hours, gpus in zip(started, (3.67, 0.83), (4, 0), strict=True):
        held = next(one for one in store.active() if one.id == job.id)
        assert isinstance(held.state, Running)
        devices = tuple(f"REPLAY-{index}" for index in range(gpus))
        state = msgspec.structs.replace(held.state, at=now - hours * HOUR, devices=devices)
        spec = msgspec.structs.replace(held.spec, gpus=gpus, user=user("mara"))
        submitted = now - (hours + 0.05) * HOUR
        store.update(msgspec.structs.replace(held, spec=spec, state=state, submitted=submitted))
    store.close()


def _store_waiting(training: int, now: float) -> None:
    """Store the jobs that wait, in the order of their numbers."""
    waits = (
        ("eval-pretrain", "mara", 1, {"after": (training,)}),
        ("export-onnx", "mara", 1, {"after": (training + 2,)}),
        ("llama-70b", "ben", 4, {"priority": 10}),
        *(("sweep-lr", "lea", 1, {"group": "sweep"}) for _ in range(3)),
        ("nightly-bench", "mara", 1, {"group": "nightly", "hold": True}),
    )
    store = Store(paths.store_file())
    for name, owner, gpus, more in waits:
        options = {"gpus": gpus, "user": user(owner), "kind": "replay", **more}
        spec = msgspec.convert(
            {"argv": ["python", f"{name}.py"], "name": name, "cwd": "/", **options}, Spec
        )
        store.insert_all([spec], now - 2 * HOUR, Queued())
    store.close()


def _limit_and_book(deck: Client, now: float) -> None:
    """Limit a group, pause another one, and book two GPUs for tomorrow."""
    deck.set_group("sweep", limit=2)
    deck.set_group("nightly", paused=True)
    morning = (datetime.fromtimestamp(now) + timedelta(days=1)).replace(hour=9, minute=0, second=0)
    deck.reserve(Booking(("REPLAY-6", "REPLAY-7"), morning.timestamp(),
                         morning.timestamp() + 4 * HOUR, None, "sweep"))  # fmt: skip


def _fill(past: tuple[Past, ...], now: float) -> None:
    """Write readings of two weeks: the recording's where a job had the GPU, else those of rest."""
    names, values = _recorded()
    draw, archive = np.random.default_rng(1), Archive(paths.history_file())
    spans = [(one.gpus, now - one.began * HOUR, now - one.ended * HOUR) for one in past]
    spans.append(((0, 1, 2, 3), now - 3.67 * HOUR, now))
    idle = np.array([_IDLE.get(name, np.nan) for name in names])[:, None]
    rest = np.where(np.isnan(idle), np.nanmin(values, axis=1, keepdims=True), idle)
    at = now - DAYS * DAY
    while at < now - ROWS * STEP_S:
        times = at + STEP_S * np.arange(ROWS)
        for device in range(DEVICES):
            busy = np.zeros(ROWS, bool)
            for gpus, began, ended in spans:
                busy |= (device in gpus) & (times >= began) & (times < ended)
            picked = values[:, draw.integers(values.shape[1] - ROWS) :][:, :ROWS]
            rows = np.where(busy, picked, rest * draw.normal(1, 0.01, (1, ROWS)))
            archive.append(f"REPLAY-{device}", HistoryTable(
                times, np.full(ROWS, STEP_S),
                {name: row[None] for name, row in zip(names, rows, strict=True)},
            ))  # fmt: skip
        at += ROWS * STEP_S
    archive.close()


def _recorded() -> tuple[list[str], np.ndarray]:
    source = ReplaySource(paths.assets() / "h100.trace.gz", 1, 0.0)
    readings = [source.read(i / 2)[0].values for i in range(2000)]
    names = sorted({name for reading in readings for name in reading})
    return names, np.array([[r.get(f, np.nan) for r in readings] for f in names])
