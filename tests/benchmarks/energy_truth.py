"""Compare the energy that the program reports of jobs and devices with the card's own counter.

    python -m tests.benchmarks.energy_truth [--out DIR]

    python -m tests.benchmarks.energy_truth --again FILE [--out DIR]

A process runs a BF16 product at full load, with pauses, and rests. The real probe reads the device
at its usual pace, and its readings go through the code that computes a job's energy
(`gpudeck.scheduler.queue.usage`) and a device's (`gpudeck.assistant.facts.usage`). Pauses in step
with the probe's readings are the worst case for power times time; other pauses are measured beside
them.

The rows go to energy_truth.csv, the raw data to energy_truth.json.gz. With --again, the rows are
computed from such a file, without a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pynvml as nv

from gpudeck.assistant.facts.usage import energy_facts
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.energy import POWER_FIELDS
from gpudeck.scheduler.protocol.jobs import Job, Running, Spec
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.queue.usage import UsageCollector
from tests.benchmarks import raw_counters
from tests.benchmarks.gpu_probe import Probe, loop, need_gpu, torch_on_gpu
from tests.benchmarks.rows import RESULTS, context, write

N = 8192
LOOK_S = 0.02
"""Seconds between two readings of the counter, which the driver updates every 20 to 100 ms."""
GAP_S = 1.17
"""Seconds between two loads: no multiple of the probe's 0.5 s, so that loads begin at varying
moments of its cycle.
"""


class Case(msgspec.Struct, frozen=True):
    """Describe a load that is busy for the share `duty` of every `period` seconds; 0 means rest."""

    name: str
    seconds: float
    duty: float
    period: float = 0.1


FULL, LONG = Case("full", 3.0, 1.0), Case("full", 10.0, 1.0)
CASES = (
    *(FULL,) * 5,
    LONG,
    Case("busy 30% of 0.5 s", 10.0, 0.3, 0.5),
    Case("busy 30% of 0.37 s", 10.0, 0.3, 0.37),
    Case("rest", 10.0, 0.0),
)


class CounterReading(msgspec.Struct, frozen=True, array_like=True):
    """Hold the counter at a moment (s since the epoch), in joules."""

    time: float
    joules: float


class Ran(msgspec.Struct, frozen=True):
    case: Case
    start: float
    end: float


class Session(msgspec.Struct, frozen=True):
    """Hold the contents of energy_truth.json.gz."""

    where: dict[str, str]
    looks: list[CounterReading]
    readings: list[Reading]
    ran: list[Ran]


# Analysis


def moved(looks: Sequence[CounterReading]) -> list[CounterReading]:
    """Return the readings at which the counter changed, which it does in steps."""
    return [
        look
        for before, look in zip([CounterReading(0.0, -1.0), *looks], looks, strict=False)
        if look.joules != before.joules
    ]


def joules_at(steps: Sequence[CounterReading], at: float) -> float:
    """Return the energy used up to a moment, interpolated between two steps of the counter.

    Raises ValueError if the moment is not between two steps.
    """
    for before, after in pairwise(steps):
        if before.time <= at <= after.time:
            return before.joules + (after.joules - before.joules) * (at - before.time) / (
                after.time - before.time
            )
    raise ValueError(f"the counter was not looked at around {at:.3f}")


def of_job(readings: Sequence[Reading], start: float, end: float) -> float | None:
    """Return the joules that the queue reports for a job that held the device alone meanwhile."""
    usage = UsageCollector()
    job = Job(
        1,
        Spec(("load",), "load", "/", gpus=1),
        start,
        Running("", (readings[0].device,), start, 1, 1, ""),
    )
    for reading in readings:
        usage.add([reading], [job] if start <= reading.time < end else [])
    used = usage.take(job, end)
    return used.energy if used is not None and "energy" not in used.absent else None


def of_device(readings: Sequence[Reading]) -> float | None:
    """Return the joules that the program reports for the device between the first and the last
    reading.
    """
    history = Columns(
        [r.time for r in readings],
        {name: [r.values.get(name) for r in readings] for name in POWER_FIELDS},
    )
    (fact,) = energy_facts(Device(readings[0].device, 0, "", "nvidia"), history, readings[-1].time)
    return fact.value if isinstance(fact.value, float) else None


def rows(session: Session) -> Iterator[dict[str, object]]:
    """Return a row for each load, as a job and as a device, and one for the whole time."""
    steps, whole = (
        moved(session.looks),
        [r for r in session.readings if session.ran[0].start <= r.time <= session.ran[-1].end],
    )
    for ran in session.ran:
        head: dict[str, object] = {"case": ran.case.name, "of": "job"}
        yield (
            head
            | _beside(steps, ran.start, ran.end, of_job(session.readings, ran.start, ran.end))
            | session.where
        )
        inside = [r for r in session.readings if ran.start <= r.time <= ran.end]
        yield (
            head
            | {"of": "device"}
            | _beside(steps, inside[0].time, inside[-1].time, of_device(inside))
            | session.where
        )
    yield (
        {"case": "all", "of": "device"}
        | _beside(steps, whole[0].time, whole[-1].time, of_device(whole))
        | session.where
    )


def _beside(
    steps: Sequence[CounterReading], start: float, end: float, ours: float | None
) -> dict[str, object]:
    counted = joules_at(steps, end) - joules_at(steps, start)
    return {
        "seconds": round(end - start, 3),
        "joules_counter": round(counted, 1),
        "joules_ours": "" if ours is None else round(ours, 1),
        "difference_percent": "" if ours is None else round(100 * (ours / counted - 1), 2),
    }


# Measurement on a GPU


class Counter:
    """Read the first GPU's energy counter continuously in a thread."""

    def __init__(self) -> None:
        nv.nvmlInit()
        self._handle = nv.nvmlDeviceGetHandleByIndex(0)
        self.name = str(nv.nvmlDeviceGetName(self._handle))
        self.looks: list[CounterReading] = []
        self._stop = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._run, name="counter", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        before = time.time()
        joules = nv.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3
        self.looks.append(CounterReading((before + time.time()) / 2, joules))

    def end(self) -> list[CounterReading]:
        self._stop.set()
        self._thread.join()
        nv.nvmlShutdown()
        return self.looks


def work() -> None:
    """Run the loads: read a case from each line of standard input, and print what became of it."""
    torch = torch_on_gpu()
    a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    a @ b
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        case = msgspec.json.decode(line, type=Case)
        began = time.time()
        if case.duty:
            ran = loop(lambda: a @ b, case.seconds, case.duty, case.period)
            began, ended = ran.start, ran.end
        else:
            time.sleep(case.seconds)
            ended = time.time()
        print(msgspec.json.encode(Ran(case, began, ended)).decode(), flush=True)


def measure() -> Session:
    """Run all cases, or raise SystemExit if the card has no counter."""
    try:
        counter = Counter()
    except nv.NVMLError as e:
        raise SystemExit(f"this card's counter of energy cannot be read: {e}") from e
    probe, ran = Probe(), list[Ran]()
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.energy_truth", "--work"],
        stdin=-1,
        stdout=-1,
        text=True,
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        if worker.stdout.readline().strip() != "ready":
            raise SystemExit("the process of the loads did not start; what it said is above")
        for case in CASES:
            time.sleep(GAP_S)
            print(msgspec.json.encode(case).decode(), file=worker.stdin, flush=True)
            ran.append(msgspec.json.decode(worker.stdout.readline(), type=Ran))
        time.sleep(GAP_S)  # wait for the last reading and the counter's last step
    finally:
        worker.kill()  # it has finished, or never will
        worker.wait()
        probe.close()
        looks = counter.end()
    kept = ("power", "power_avg", "util", "energy", "clock_sm")
    slim = [
        msgspec.structs.replace(
            r, values={k: v for k, v in r.values.items() if k in kept}, processes=()
        )
        for r in probe.readings
    ]
    return Session(context(counter.name, ["torch", "nvidia-ml-py"]), looks, slim, ran)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.energy_truth")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="compute energy_truth.csv anew from an energy_truth.json.gz",
    )
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work()
        return 0
    if args.again:
        session = raw_counters.read(args.again, Session)
    else:
        need_gpu()
        session = measure()
        args.out.mkdir(parents=True, exist_ok=True)
        raw_counters.write(session, args.out / "energy_truth.json.gz")
    found = list(rows(session))
    for row in found:
        told = f"counter {row['joules_counter']:9} J  ours {row['joules_ours']:9} J"
        told += f"  {row['difference_percent']:6} %"
        print(f"{row['case']:20} {row['of']:7} {row['seconds']:7} s  {told}")
    print(write("energy_truth", found, args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
