"""The machine of one campaign: its processes, its disk and its boot, apart from the real one.

As root, `make torture` runs each campaign in namespaces of its own for processes and mounts. There,
all processes may be killed, process numbers repeat, and the machine has a boot id that changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import lives, send

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
EXT4_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
"""The request that cuts an ext4 off its disk, as a power cut does, and its mode."""
SABOTAGE = Path(__file__).parents[1] / "sabotage"
"""Where a daemon finds the module by which its clock can be set."""
DISK_MIB = 128
UNMOUNT_S = 20.0


class Process(NamedTuple):
    """Describe a process of the campaign."""

    pid: int
    parent: int
    command: tuple[str, ...]

    def runs(self, module: str) -> bool:
        """Return whether it is a Python that runs this module or script."""
        return any(word == module or word.endswith(f"/{module}") for word in self.command[1:8])


def namespaces() -> list[str]:
    """Return the words before a command that run it in namespaces; none where that is refused."""
    words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.getuid() or not shutil.which("unshare"):
        return []
    tried = subprocess.run([*words, "true"], capture_output=True, check=False)
    # the shell is the first process there, and reaps those whose parents have ended
    return [] if tried.returncode else [*words, "sh", "-c", '"$@"; exit $?', "init"]


class World:
    """Provide the state folder of a campaign, and power over everything that runs for it."""

    def __init__(self, folder: Path, *, apart: bool, disk: bool) -> None:
        """Mount what is asked for.

        Args:
            folder: Holds everything that is not on the disk under attack.
            apart: This process has namespaces of its own.
            disk: The state folder is on a file system of its own, which needs root.
        """
        self.folder, self.apart = folder, apart
        folder.mkdir(parents=True, exist_ok=True)
        if apart:  # whatever goes wrong here cannot fill the machine's disk or memory
            _do("mount", "-t", "tmpfs", "-o", f"size={3 * DISK_MIB}m", "tmpfs", folder)
        self._mount, self._image = folder / "disk", folder / "image"
        self._mount.mkdir(mode=0o700 if not disk else 0)  # no store is made where the disk is not
        self.home = self._mount / "home"
        self.disk = disk
        self.boots = 0
        self.power = threading.Lock()
        """Held while the machine is off, and for a moment by each command that starts."""
        self._clock = folder / "clock"
        self.env = {
            "GPUDECK_HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPATH": os.pathsep.join([str(SABOTAGE), *sys.path]),
            "TORTURE_FOLDER": str(folder),
        }
        if disk:
            with self._image.open("wb") as f:
                f.truncate(DISK_MIB * 2**20)
            _do("mkfs.ext4", "-q", "-F", "-m", "0", "-N", "80000", self._image)
            self._mount_disk()
        if apart:
            self._boot_id = folder / "boot_id"
            self._boot_id.write_text(f"{uuid.uuid4()}\n")
            _do("mount", "--bind", self._boot_id, BOOT_ID)
        self.home.mkdir(mode=0o700)

    def set_clock(self, seconds: int) -> None:
        """Set the daemon's clock wrong by so much; what a job and a file say stays true."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{seconds}\n")
        new.rename(self._clock)

    # Processes

    def processes(self) -> Iterator[Process]:
        """Yield the processes of this world's GPU Deck, its clients apart."""
        own = self._own()
        for pid in (int(e.name) for e in Path("/proc").iterdir() if e.name.isdigit()):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                stat = Path(f"/proc/{pid}/stat").read_bytes()
                if pid in own or not command or (not self.apart and not self._uses_home(pid)):
                    continue
            except OSError:
                continue  # it has ended
            words = tuple(w.decode(errors="replace") for w in command.split(b"\0")[:-1])
            yield Process(pid, int(stat[stat.rindex(b")") + 2 :].split()[1]), words)

    def find(self, module: str) -> list[Process]:
        """Return the processes that run this module."""
        return [process for process in self.processes() if process.runs(module)]

    def jobs(self, ledger: Path) -> dict[str, Process]:
        """Return the processes that a runner started to run a job, by the job's token."""
        runners = {process.pid for process in self.find("runner.py")}
        return {
            process.command[place + 1]: process
            for process in self.processes()
            if process.parent in runners and str(ledger) in process.command
            for place in (process.command.index(str(ledger)),)
        }

    def signal(self, module: str, number: int) -> list[int]:
        """Send a signal to all processes that run this module, and return their numbers."""
        found = [process.pid for process in self.find(module)]
        for pid in found:
            send(pid, number)
        return found

    def _uses_home(self, pid: int) -> bool:
        needle = os.fsencode(self.folder)
        return any(
            needle in Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")
        ) or str(Path(f"/proc/{pid}/cwd").readlink()).startswith(str(self.folder))

    def _own(self) -> set[int]:
        """Return the driver's processes: this one, its parent, and those that run commands."""
        pid = os.getpid()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {pid, os.getppid(), *map(int, children)}

    # Boots and disks

    def restart(self, between: Callable[[], object] = lambda: None) -> None:
        """Kill everything as a crash of the machine does, do what is given, and start anew."""
        with self.power:
            self.kill_everything()
            between()
            self.boots += 1
            if self.apart:
                self._boot_id.write_text(f"{uuid.uuid4()}\n")
                LAST_PID.write_text("300")  # process numbers start again

    def kill_everything(self) -> None:
        """Kill all processes of this world until none is left."""
        end = time.monotonic() + UNMOUNT_S
        while found := [p.pid for p in self.processes() if lives(p.pid)]:
            for pid in found:
                send(pid, signal.SIGKILL)
            if time.monotonic() > end:
                raise TimeoutError(f"processes cannot be killed: {found}")
            time.sleep(0.005)

    def fill_disk(self) -> None:
        """Use all that is left of the disk."""
        assert self._mount.is_mount()
        with (self._mount / "ballast").open("wb", buffering=0) as f:
            for size in (2**20, 65536, 1024, 1):
                try:
                    while True:
                        f.write(b"x" * size)
                except OSError:
                    pass

    def free_disk(self) -> None:
        """Free what `fill_disk` used."""
        (self._mount / "ballast").unlink(missing_ok=True)

    def abort_disk(self) -> None:
        """Make the file system give up, as after an error of its disk: it refuses all writes."""
        _do("mount", "-o", "remount,abort", self._mount)

    def cut_power(self) -> None:
        """Cut the disk off at once: what was not synced is gone."""
        fd = os.open(self._mount, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(fd)

    def heal(self) -> None:
        """Undo what faults left: stopped processes, a full disk, folders without permissions."""
        for process in self.processes():
            send(process.pid, signal.SIGCONT)
        self.free_disk()
        restore_modes(self.home / "jobs")

    def repair_disk(self) -> None:
        """Unmount the disk, check it, and mount it again. Nothing may run from it."""
        end = time.monotonic() + UNMOUNT_S
        while subprocess.run(["umount", self._mount], capture_output=True, check=False).returncode:
            if time.monotonic() > end:
                raise TimeoutError(f"{self._mount} is still in use")
            time.sleep(0.02)
        subprocess.run(["fsck.ext4", "-fy", self._image], capture_output=True, check=False)
        self._mount_disk()

    def _mount_disk(self) -> None:
        _do("mount", "-o", "loop", self._image, self._mount)

    def close(self) -> None:
        """End all processes, and unmount the disk."""
        self.kill_everything()
        if self.disk:
            subprocess.run(["umount", "-l", self._mount], check=True)
            self._image.unlink()


def restore_modes(jobs: Path) -> None:
    """Give the folder of the jobs, each job's and its artefacts the permissions they had."""
    for folder in (jobs, *jobs.glob("*"), *jobs.glob("*/artefacts")):
        with contextlib.suppress(OSError):
            if folder.is_dir() and folder.stat().st_mode & 0o777 != 0o700:
                folder.chmod(0o700)


def nonce() -> str:
    """Return a word that no other campaign has."""
    return secrets.token_hex(4)


def _do(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
