"""Time suspensions of a real training on a GPU, and check that it ends as if nothing had happened.

    python -m tests.benchmarks.suspension OUT.csv [--rounds 100] [--sizes 0.5,4,16,40]

A training (compiled, captured in a CUDA graph, with a buffer that fills its memory) is suspended
and resumed by the service that the daemon uses; then the same number of steps runs undisturbed, and
the weights and the buffer must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pynvml

from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.suspension.calls import Done
from gpudeck.scheduler.suspension.helper_process import HelperProcess
from gpudeck.scheduler.suspension.service import SuspensionService

GIB = 2**30
TRAINING = """
import hashlib, sys, time, torch
from pathlib import Path
gib, stop, limit = float(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(1)
buffer = torch.randint(0, 255, (int(gib * 2**30),), dtype=torch.uint8, device="cuda")
linear = torch.nn.Linear
model = torch.nn.Sequential(linear(512, 2048), torch.nn.GELU(), linear(2048, 512)).cuda()
run = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, capturable=True)
data = torch.randn(64, 512, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=False)
    loss = (run(data) - data).square().mean()
    loss.backward()
    optimizer.step()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
print("ready", flush=True)
steps = 0
while steps < limit if limit else not stop.exists():
    data.normal_()
    graph.replay()
    steps += 1
    if steps % 50 == 0:
        torch.cuda.synchronize()
digest = hashlib.sha256()
for p in model.parameters():
    digest.update(p.detach().cpu().numpy().tobytes())
digest.update(str(buffer.view(torch.int64).sum().item()).encode())
print(steps, digest.hexdigest(), flush=True)
"""
FOREIGN = """
import sys, torch, time
x = torch.zeros(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True); time.sleep(1000)
"""


class TimedHelper(HelperProcess):
    """Add up what the driver took."""

    def __init__(self) -> None:
        super().__init__()
        self.driver_s = self.gap_s = 0.0

    async def call(self, *args: Any, **kwargs: Any) -> Done:
        done = await super().call(*args, **kwargs)
        self.driver_s += done.seconds
        self.gap_s = max(self.gap_s, done.gap)
        return done

    def take(self) -> tuple[float, float]:
        found = self.driver_s, self.gap_s
        self.driver_s = self.gap_s = 0.0
        return found


class Card:
    """The first GPU, as NVML shows it."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self.handle))
        self.name = str(pynvml.nvmlDeviceGetName(self.handle))
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())

    def used(self, pid: int) -> int:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return next((int(p.usedGpuMemory) for p in found if p.pid == pid), 0)

    def all_used(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle, pynvml.nvmlMemory_v2).used)

    async def program(self, pid: int) -> tuple[Process, list[Detail]]:
        ticks = start_time(pid)
        assert ticks is not None
        process = Process(pid, "training", memory=float(self.used(pid)), ticks=ticks)
        return process, [Detail(self.uuid, time.time(), processes=(process,))]


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        (sys.executable, "-c", code, *map(str, arguments)), stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def result(program: subprocess.Popen[str]) -> tuple[int, str]:
    assert program.stdout is not None
    steps, digest = program.stdout.readline().split()
    program.wait()
    return int(steps), digest


async def suspend(service: SuspensionService, card: Card, pid: int, row: dict[str, object],
                  helper: TimedHelper) -> None:  # fmt: skip
    """Take a program off and bring it back; put the times into the row."""
    helper.take()
    found = await service.suspend(lambda: card.program(pid), None)
    driver, _ = helper.take()
    row |= {"out_s": found.seconds, "out_driver_s": driver, "left_mib": card.all_used() / 2**20}
    back = await service.resume(pid, None)
    driver, gap = helper.take()
    row |= {"back_s": back.seconds, "back_driver_s": driver, "gap_us": 1e6 * gap}


async def measure(arguments: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    card, rows = Card(), []
    helper = TimedHelper()
    service = SuspensionService(folder / "suspensions.json", lambda: None, lambda: 2**31)
    service._helper = helper
    await service.recover()
    base = {"gpu": card.name, "driver": card.driver, "uid": os.getuid(),
            "date": time.strftime("%Y-%m-%d")}  # fmt: skip
    print(await helper.check(), "in use before:", card.all_used() / 2**20, "MiB", flush=True)
    for size in map(float, arguments.sizes.split(",")):
        rounds = arguments.rounds if size < 1 else 3 if size < 20 else 1
        stop = folder / f"stop{size}"
        training = start(TRAINING, size, stop, 0)
        held = card.used(training.pid) / GIB
        found: list[dict[str, object]] = []
        for _ in range(rounds):
            found.append({})
            await suspend(service, card, training.pid, found[-1], helper)
        stop.touch()
        steps, digest = result(training)
        steps_again, again = result(start(TRAINING, size, stop, steps))
        row: dict[str, object] = base | {
            "case": "training",
            "held_gib": f"{held:.2f}",
            "rounds": rounds,
            "steps": steps,
            "bit_equal": (steps, digest) == (steps_again, again),
        }
        for name in found[0]:
            values = sorted(float(str(each[name])) for each in found)
            row[name] = f"{statistics.median(values):.4g}"
            row[f"{name}_max"] = f"{values[-1]:.4g}"
        print(row, flush=True)
        rows.append(row)
    if not arguments.foreign:
        await service.stop()
        return rows
    # another program takes the room: nothing is lost
    stop = folder / "stop-foreign"
    training = start(TRAINING, 45, stop, 0)
    await service.suspend(lambda: card.program(training.pid), None)
    other = start(FOREIGN, 50)
    try:
        await service.resume(training.pid, None)
        outcome = "resumed without room"
    except UserError as e:
        outcome = str(e)
    other.kill()
    other.wait()
    while card.all_used() > 2 * GIB:
        time.sleep(0.1)
    await service.resume(training.pid, None)
    # two programs that do not fit together take turns
    second_stop = folder / "stop-second"
    await service.suspend(lambda: card.program(training.pid), None)
    second = start(TRAINING, 45, second_stop, 0)
    began = time.monotonic()
    for _ in range(arguments.exchanges):
        await service.suspend(lambda: card.program(second.pid), None)
        await service.resume(training.pid, None)
        await service.suspend(lambda: card.program(training.pid), None)
        await service.resume(second.pid, None)
    took = time.monotonic() - began
    second_stop.touch()
    steps, digest = result(second)
    equal = result(start(TRAINING, 45, second_stop, steps)) == (steps, digest)
    await service.resume(training.pid, None)
    stop.touch()
    steps, digest = result(training)
    equal = equal and result(start(TRAINING, 45, stop, steps)) == (steps, digest)
    row = base | {
        "case": f"foreign program, then {2 * arguments.exchanges} exchanges",
        "held_gib": "45",
        "bit_equal": equal,
        "out_s": f"{took:.1f}",
        "note": outcome,
    }
    print(row, flush=True)
    rows.append(row)
    await service.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sizes", default="0.5,4,16,40")
    parser.add_argument("--foreign", action="store_true")
    parser.add_argument("--exchanges", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(arguments, Path(folder)))
    names = list(dict.fromkeys(name for row in rows for name in row))
    with arguments.file.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
