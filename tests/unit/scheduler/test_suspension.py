"""Programs are taken off the GPU and brought back by a driver that plays recorded answers."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.suspension import steps
from gpudeck.scheduler.suspension.calls import Room
from gpudeck.scheduler.suspension.evidence import read_suspensions
from gpudeck.scheduler.suspension.helper_process import HelperProcess
from gpudeck.scheduler.suspension.program import Member, is_stopped
from gpudeck.scheduler.suspension.service import SuspensionService
from tests.unit.scheduler.stub_cuda import build_library

GPU, GIB = "GPU-abababab-abab-abab-abab-abababababab", 2**30


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("cuda"))


class Machine:
    """A machine with one GPU of 80 GiB, whose driver keeps its state in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, list[subprocess.Popen[bytes]]()
        self.children = list[int]()
        self.write("total", 80 * GIB)
        self.file = folder / "suspensions.json"

    def write(self, name: str, value: int) -> None:
        (self.folder / name).write_text(f"{value}\n")

    def start(self, size: int) -> Member:
        """Start a program that holds GPU memory, in bytes."""
        program = subprocess.Popen(("sleep", "1000"))
        self.programs.append(program)
        return self.note(program.pid, size)

    def start_two(self, size: int, size_of_child: int) -> tuple[Member, Member]:
        """Start a program of two processes that hold GPU memory."""
        program = subprocess.Popen(("sh", "-c", "sleep 1000 & echo $!; wait"),
                                   stdout=subprocess.PIPE)  # fmt: skip
        self.programs.append(program)
        assert program.stdout is not None
        child = int(program.stdout.readline())
        program.stdout.close()
        self.children.append(child)
        return self.note(program.pid, size), self.note(child, size_of_child)

    def note(self, pid: int, size: int) -> Member:
        self.write(f"{pid}.size", size)
        ticks = start_time(pid)
        assert ticks is not None
        return Member(pid, ticks, (Room(GPU, size),))

    def state(self, member: Member) -> int:
        """Return 0 for a process that runs, 1 for a locked and 2 for a checkpointed one."""
        file = self.folder / f"{member.pid}.state"
        return int(file.read_text()) if file.exists() else 0

    def runs(self, member: Member) -> bool:
        return member.lives and not is_stopped(member) and self.state(member) == 0

    def is_off(self, member: Member) -> bool:
        return stops(member) and self.state(member) == 2

    def calls(self) -> list[str]:
        file = self.folder / "calls"
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("STUB_CUDA", str(tmp_path))
    # other programs may use the memory of this machine
    monkeypatch.setattr(
        "gpudeck.scheduler.suspension.service.find_free_memory", lambda pid: 100 * GIB
    )
    made = Machine(tmp_path)
    yield made
    for child in made.children:
        os.kill(child, signal.SIGKILL)
    for program in made.programs:
        program.kill()
        program.wait()


def stops(member: Member) -> bool:
    """Wait until a signal has stopped a process; return whether it did."""
    until = time.monotonic() + 20
    while not is_stopped(member) and member.lives and time.monotonic() < until:
        time.sleep(0.005)
    return is_stopped(member)


async def suspend(
    service: SuspensionService, *members: Member, user: int | None = None
) -> SuspendedProgram:
    """Suspend the program of these processes, as a client would."""
    found = [Process(m.pid, "train", memory=m.rooms[0].memory, ticks=m.ticks) for m in members]

    async def look() -> tuple[Process, list[Detail]]:
        return found[0], [Detail(GPU, 0.0, processes=tuple(found))]

    return await service.suspend(look, user)


def serve(machine: Machine, work: Callable[[SuspensionService], Awaitable[None]]) -> None:
    """Run work with a service, as a daemon does that starts and ends."""

    async def run() -> None:
        service = SuspensionService(machine.file, lambda: None, lambda: 2 * GIB)
        try:
            await service.recover()
            await work(service)
        finally:
            await service.stop()

    asyncio.run(run())


def test_a_program_leaves_the_gpu_and_comes_back(machine: Machine) -> None:
    one, two = machine.start_two(30 * GIB, 10 * GIB)

    async def work(service: SuspensionService) -> None:
        found = await suspend(service, one, two)
        assert found.memory == 40 * GIB and [each.pid for each in service.describe()] == [one.pid]
        assert machine.is_off(one) and machine.is_off(two)
        await service.resume(one.pid, None)
        assert service.describe() == ()

    serve(machine, work)
    assert machine.runs(one) and machine.runs(two)
    # all are locked before the first is copied, and each is restored before it is unlocked
    order = ["lock", "lock", "checkpoint", "checkpoint", "restore", "unlock", "restore", "unlock"]
    assert machine.calls() == order
    assert not list(machine.folder.glob("hold.*"))


@pytest.mark.parametrize(("call", "code"), [("lock", 600), ("checkpoint", 801), ("checkpoint", 1)])
def test_a_program_that_the_driver_refuses_runs_on(machine: Machine, call: str, code: int) -> None:
    one, two = machine.start_two(30 * GIB, 10 * GIB)
    machine.write(f"{call}.{two.pid}.code", code)

    async def work(service: SuspensionService) -> None:
        with pytest.raises(UserError, match="runs on"):
            await suspend(service, one, two)
        assert service.describe() == ()

    serve(machine, work)
    assert machine.runs(one) and machine.runs(two)
    assert read_suspensions(machine.file) == ()


def test_nobody_suspends_or_resumes_a_program_of_another_user(machine: Machine) -> None:
    member, stranger = machine.start(GIB), 65_534

    async def work(service: SuspensionService) -> None:
        with pytest.raises(UserError, match="belongs to another user"):
            await suspend(service, member, user=stranger)
        assert machine.runs(member) and "lock" not in machine.calls()
        await suspend(service, member, user=os.getuid())
        with pytest.raises(UserError, match="belongs to another user"):
            await service.resume(member.pid, stranger)
        assert machine.is_off(member)
        await service.resume(member.pid, os.getuid())

    serve(machine, work)
    assert machine.runs(member)


def test_a_stopped_program_is_refused(machine: Machine) -> None:
    member = machine.start(GIB)
    os.kill(member.pid, signal.SIGSTOP)
    assert stops(member)

    async def work(service: SuspensionService) -> None:
        with pytest.raises(UserError, match="Let it run first"):
            await suspend(service, member)

    serve(machine, work)
    assert is_stopped(member) and machine.calls() == []


def test_a_program_whose_room_is_taken_stays_suspended(machine: Machine) -> None:
    member = machine.start(50 * GIB)

    async def work(service: SuspensionService) -> None:
        await suspend(service, member)
        other = machine.start(40 * GIB)
        with pytest.raises(steps.NoRoom, match="stays suspended"):
            await service.resume(member.pid, None)
        assert machine.is_off(member) and service.describe()[0].phase == "suspended"
        assert "restore" not in machine.calls()  # it would be lost for ever
        machine.programs[-1].kill()
        machine.programs[-1].wait()
        assert not other.lives
        await service.resume(member.pid, None)

    serve(machine, work)
    assert machine.runs(member)


def test_memory_that_is_held_for_a_restore_is_nobody_elses(machine: Machine) -> None:
    member = machine.start(50 * GIB)

    async def work(service: SuspensionService) -> None:
        await suspend(service, member)
        helper = HelperProcess()
        assert await helper.hold(member.pid, member.rooms)
        assert await helper.hold(member.pid, member.rooms)
        (held,) = machine.folder.glob("hold.*")
        assert held.suffix == ".1", "memory that is held is not allocated again"
        with pytest.raises(steps.NoRoom):
            await service.resume(member.pid, None)
        await helper.stop()  # its memory is released with it
        await service.resume(member.pid, None)

    serve(machine, work)


def test_too_little_host_memory_is_refused_before_anything_is_done(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gpudeck.scheduler.suspension.service.find_free_memory", lambda pid: 31 * GIB
    )
    member = machine.start(30 * GIB)

    async def work(service: SuspensionService) -> None:
        with pytest.raises(UserError, match="31 GiB are free there"):
            await suspend(service, member)

    serve(machine, work)
    assert machine.runs(member) and machine.calls() == []


@pytest.mark.parametrize("call", ["lock", "checkpoint"])
def test_a_call_that_hangs_ends_with_the_program_running(
    machine: Machine, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "LOCK_S", 0.1)
    monkeypatch.setattr(steps, "limit_copy", lambda member: 0.3)
    monkeypatch.setattr("gpudeck.scheduler.suspension.helper_process.CALL_S", 0.3)
    member = machine.start(GIB)
    machine.write(f"{call}.hang", 1)

    async def work(service: SuspensionService) -> None:
        with pytest.raises(UserError, match="did not answer in time"):
            await suspend(service, member)

    serve(machine, work)
    assert machine.runs(member)


def test_a_restore_that_hangs_is_finished_by_another_helper(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "limit_copy", lambda member: 0.3)
    member = machine.start(GIB)

    async def work(service: SuspensionService) -> None:
        await suspend(service, member)
        machine.write("restore.hang", 1)
        await service.resume(member.pid, None)

    serve(machine, work)
    assert machine.runs(member)


def test_a_disk_that_is_full_at_the_end_lets_the_program_run_on(machine: Machine) -> None:
    member = machine.start(GIB)

    async def work(service: SuspensionService) -> None:
        machine.write("checkpoint.slow", 200)
        task = asyncio.create_task(suspend(service, member))
        while not machine.calls():
            await asyncio.sleep(0.005)
        machine.file.with_suffix(".new").mkdir()  # the file cannot be written from now on
        with pytest.raises(UserError, match="cannot be written"):
            await task
        machine.file.with_suffix(".new").rmdir()

    serve(machine, work)
    assert machine.runs(member)
    serve(machine, lambda service: asyncio.sleep(0))
    assert read_suspensions(machine.file) == ()


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_what_an_earlier_daemon_suspended_stays_so(machine: Machine) -> None:
    member = machine.start(GIB)

    async def first(service: SuspensionService) -> None:
        await suspend(service, member)

    async def second(service: SuspensionService) -> None:
        assert machine.is_off(member)
        await service.resume(member.pid, None)

    serve(machine, first)
    serve(machine, second)
    assert machine.runs(member)


def test_what_was_suspended_before_a_reboot_is_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = machine.start(GIB)

    async def first(service: SuspensionService) -> None:
        await suspend(service, member)

    async def second(service: SuspensionService) -> None:
        assert service.describe() == () and service.recovered

    serve(machine, first)
    monkeypatch.setattr("gpudeck.scheduler.suspension.evidence.boot_id", lambda: "another boot")
    serve(machine, second)


def test_what_was_not_stopped_before_a_crash_is_stopped_afterwards(machine: Machine) -> None:
    member = machine.start(GIB)

    async def first(service: SuspensionService) -> None:
        await suspend(service, member)

    async def second(service: SuspensionService) -> None:
        assert machine.is_off(member)
        await service.resume(member.pid, None)

    serve(machine, first)
    os.kill(member.pid, signal.SIGCONT)  # as if the daemon had ended after it wrote the list
    serve(machine, second)
    assert machine.runs(member)


def test_a_program_is_measured_when_its_turn_has_come(machine: Machine) -> None:
    first, second = machine.start(GIB), machine.start(30 * GIB)
    machine.write("checkpoint.slow", 100)

    async def work(service: SuspensionService) -> None:
        async def look() -> tuple[Process, list[Detail]]:
            assert machine.state(first) == 2
            process = Process(second.pid, "train", memory=30.0 * GIB, ticks=second.ticks)
            return process, [Detail(GPU, 0.0, processes=(process,))]

        task = asyncio.create_task(suspend(service, first))
        while not machine.calls():
            await asyncio.sleep(0.005)
        assert (await service.suspend(look, None)).memory == 30 * GIB
        await task
        await service.resume(second.pid, None)
        await service.resume(first.pid, None)

    serve(machine, work)
    assert machine.runs(first) and machine.runs(second)


def test_an_unreadable_list_is_kept(machine: Machine) -> None:
    member = machine.start(GIB)
    machine.file.write_bytes(b"damaged")

    async def run() -> None:
        service = SuspensionService(machine.file, lambda: None, lambda: 0)
        with pytest.raises(UserError, match="cannot be read"):
            await service.recover()
        with pytest.raises(UserError, match="nothing is suspended until"):
            await suspend(service, member)
        await service.stop()

    asyncio.run(run())
    assert machine.file.read_bytes() == b"damaged" and machine.runs(member)


def test_a_process_is_stopped_where_no_more_files_can_be_opened(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = machine.start(GIB)

    def refuse(pid: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("os.pidfd_open", refuse)

    async def work(service: SuspensionService) -> None:
        await suspend(service, member)
        assert machine.is_off(member)
        await service.resume(member.pid, None)

    serve(machine, work)
    assert machine.runs(member)


def test_a_program_that_ended_is_forgotten(machine: Machine) -> None:
    member = machine.start(GIB)

    async def work(service: SuspensionService) -> None:
        await suspend(service, member)

    serve(machine, work)
    machine.programs[0].kill()
    machine.programs[0].wait()

    async def look(service: SuspensionService) -> None:
        assert service.describe() == ()
        with pytest.raises(NotFound):
            await service.resume(member.pid, None)

    serve(machine, look)


def test_a_machine_without_a_driver_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "libcuda.so.1").write_bytes(b"no library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))

    async def run() -> None:
        helper = HelperProcess()
        with pytest.raises(UserError, match="no NVIDIA driver"):
            await helper.require()
        await helper.stop()

    asyncio.run(run())


WORKER = """
import asyncio, sys
from pathlib import Path
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.suspension.service import SuspensionService

async def run():
    service = SuspensionService(Path(sys.argv[1]), lambda: None, lambda: 0)
    await service.recover()
    process = Process(int(sys.argv[2]), "train", memory=2**30, ticks=int(sys.argv[3]))
    detail = Detail(sys.argv[4], 0.0, processes=(process,))
    async def look():
        return process, [detail]
    print("ready", flush=True)
    while True:
        await service.suspend(look, None)
        await service.resume(process.pid, None)

asyncio.run(run())
"""


@pytest.mark.parametrize("schedules", [6, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_no_kill_of_daemon_or_helper_loses_a_program(machine: Machine, schedules: int) -> None:
    """Kill one of them at a random moment of a suspension; the next daemon must bring it back."""
    drawn = random.Random(schedules)
    member = machine.start(GIB)
    for call in ("lock", "checkpoint", "restore", "unlock"):
        machine.write(f"{call}.slow", 3)
    for _ in range(schedules):
        arguments = (str(machine.file), str(member.pid), str(member.ticks), GPU)
        daemon = subprocess.Popen((sys.executable, "-c", WORKER, *arguments),
                                  stdout=subprocess.PIPE)  # fmt: skip
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"ready\n"
        time.sleep(drawn.uniform(0.0, 0.08))
        helpers = children(daemon.pid)
        if helpers and drawn.random() < 0.5:
            os.kill(int(helpers[0]), signal.SIGKILL)
            time.sleep(drawn.uniform(0.0, 0.2))
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()

        async def look(service: SuspensionService) -> None:
            if service.describe():
                assert machine.is_off(member)
                await service.resume(member.pid, None)

        serve(machine, look)
        assert machine.runs(member), machine.calls()[-8:]
