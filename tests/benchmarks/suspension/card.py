"""The GPU on which suspensions are measured, as NVML and nvidia-smi show it."""

from __future__ import annotations

import os
import subprocess
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.protocol.devices import Detail, Process
from tests.benchmarks import rows

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
Row = dict[str, object]


class Card:
    """The GPU whose index the variable GPU tells; the first one without it."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self.index = int(os.environ.get("GPU", "0"))
        self.handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        self.uuid = str(pynvml.nvmlDeviceGetUUID(self.handle))
        # the programs that this process starts see no other GPU
        os.environ["CUDA_VISIBLE_DEVICES"] = self.uuid
        self.context: Row = {
            "gpu": str(pynvml.nvmlDeviceGetName(self.handle)),
            "driver": str(pynvml.nvmlSystemGetDriverVersion()),
            "uid": os.getuid(),
            "date": time.strftime("%Y-%m-%d"),
        }

    @property
    def total(self) -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle, pynvml.nvmlMemory_v2).total)

    @property
    def used(self) -> int:
        """Return all memory in use, in bytes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle, pynvml.nvmlMemory_v2).used)

    @property
    def free(self) -> int:
        """Return the memory that programs can still allocate, in bytes."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self.handle, pynvml.nvmlMemory_v2).free)

    @property
    def used_mib(self) -> int:
        """Return what nvidia-smi shows."""
        query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
        command = ("nvidia-smi", "-i", str(self.index), *query)
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    def held(self, pid: int) -> int:
        """Return what a process holds, in bytes."""
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return next((int(p.usedGpuMemory) for p in found if p.pid == pid), 0)

    async def find(self, pid: int) -> tuple[Process, list[Detail]]:
        """Return a program as the service takes it."""
        ticks = start_time(pid)
        assert ticks is not None
        process = Process(pid, "program", memory=float(self.held(pid)), ticks=ticks)
        return process, [Detail(self.uuid, time.time(), processes=(process,))]


def read_huge_pages() -> str:
    """Return when the kernel gives programs pages of 2 MiB: always, madvise or never."""
    return HUGE_PAGES.read_text().split("[")[1].split("]")[0]


@contextmanager
def huge_pages_always() -> Iterator[None]:
    """Have the kernel give pages of 2 MiB to every program for a while."""
    before = read_huge_pages()
    HUGE_PAGES.write_text("always")
    try:
        yield
    finally:
        HUGE_PAGES.write_text(before)


def keep(name: str, row: Row, folder: Path) -> None:
    """Print a row, and write it."""
    print(time.strftime("%H:%M:%S"), row, flush=True)
    keys = ("case", "held_gib", "huge_pages", "uid", "date")
    rows.merge(name, [row], keys, folder)


@contextmanager
def survive(what: str) -> Iterator[None]:
    """Print what went wrong, so that the rest is measured all the same."""
    try:
        yield
    except Exception:  # noqa: BLE001 - whatever it was, it is printed
        print(f"FAILED: {what}\n{traceback.format_exc()}", flush=True)
