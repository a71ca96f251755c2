"""What the kernel knows of processes: enough to tell one from any other, past or future."""

from __future__ import annotations

from pathlib import Path

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError


def boot_id() -> str:
    """Return a name that changes with every boot. Raises UserError where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as e:
        raise UserError(phrase("the kernel's boot id cannot be read: {error}", error=str(e))) from e


def pid_namespace() -> int:
    """Return the number of this process's PID namespace, in which pids have their meaning.

    Raises UserError where the kernel has none.
    """
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError as e:
        raise UserError(
            phrase("the PID namespace of this process cannot be read: {error}", error=str(e))
        ) from e


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None where there is none.

    Together with the pid, its namespace and the boot id it names a process for good.
    """
    fields = stat_fields(pid)
    return None if fields is None else int(fields[19])


def stat_fields(pid: int) -> list[bytes] | None:
    """Return the fields of proc_pid_stat(5) from the third on; None where the process ended."""
    if (stat := read_proc(f"/proc/{pid}/stat")) is None:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields


def read_proc(name: str) -> bytes | None:
    """Return a file of /proc; None where the process ended, or belongs to another user."""
    try:
        with open(name, "rb", buffering=0) as file:  # noqa: PTH123 - many are read: no Path
            return file.read()
    except OSError:
        return None
