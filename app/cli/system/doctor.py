"""Check everything that GPU Deck needs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from typing import Literal

import msgspec

from gpudeck.app.cli.connection import daemon_status, wait_for_reading
from gpudeck.app.cli.output import print_result
from gpudeck.app.cli.system import job_folders
from gpudeck.assistant.library.describe import describe
from gpudeck.extras import PARTS, missing_of
from gpudeck.language.text import phrase
from gpudeck.scheduler.background.instance import hold_lock
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.units import list_job_ranges
from gpudeck.scheduler.suspension.calls import Capability
from gpudeck.scheduler.suspension.helper_process import HelperProcess, describe_problem
from gpudeck.version import VERSION

MIN_FREE_BYTES = 500 * 2**20
_PACKAGES = ("torch", "PySide6-Essentials", "pyqtgraph", "nvidia-ml-py", "safetensors")


class Finding(msgspec.Struct):
    """Describe the result of one check, as --json prints it."""

    what: str
    verdict: Literal["ok", "warning", "failure"]
    words: str


class _CheckWarning(Exception):
    """Report something that works, but needs attention."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the option to repair the store."""
    parser.add_argument(
        "--repair",
        action="store_true",
        help="replace a damaged store by a new one with everything that can be saved, and restore "
        "permissions of job folders",
    )


def run(args: Namespace) -> int:
    """Print the result of each check; the exit status is 1 if one failed."""
    checks: dict[str, Callable[[], str]] = {
        "Python and packages": _check_packages,
        "parts": _check_parts,
        "state folder": _check_home,
        "disk": _check_disk,
        "settings": _check_settings,
        "job folders": _repair_folders if args.repair else _check_folders,
        "store": _repair_store if args.repair else _check_store,
        "window libraries": _check_window,
        "daemon": _check_daemon,
        "devices": _check_devices,
        "suspending programs": _check_suspension,
    }
    findings = [_run_check(what, check) for what, check in checks.items()]
    print_result(args, findings, *(f"{f.verdict:8} {f.what}: {f.words}" for f in findings))
    return 1 if any(finding.verdict == "failure" for finding in findings) else 0


def _run_check(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, "ok", check())
    except _CheckWarning as e:
        return Finding(what, "warning", str(e))
    except UserError as e:
        return Finding(what, "failure", str(e))


def _check_packages() -> str:
    found = []
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return f"GPU Deck {VERSION}, Python {sys.version.split()[0]}, {', '.join(found)}"


def _check_parts() -> str:
    parts = {extra: missing_of(extra) for extra in PARTS}
    lines = [str(missing) if missing else f"{extra}: installed" for extra, missing in parts.items()]
    return "; ".join(lines)


def _check_home() -> str:
    home = paths.ensure(paths.home())
    if not os.access(home, os.W_OK):
        raise UserError(
            phrase(
                "cannot write to {home}. Set GPUDECK_HOME to a folder you can write to",
                home=str(home),
            )
        )
    if note := paths.network_note():
        raise _CheckWarning(note)
    return str(home)


def _check_disk() -> str:
    free = shutil.disk_usage(paths.home()).free
    text = f"{free / 2**30:.1f} GiB free"
    if free < MIN_FREE_BYTES:
        raise _CheckWarning(f"only {text} for the state folder. Jobs and logs need more space")
    return text


def _check_settings() -> str:
    used = settings.load().model
    if not used:
        return "valid; no model is in use, so templates write all texts"
    model = describe(used)
    if model.problem:
        raise UserError(
            phrase("the assistant's model cannot be used: {problem}", problem=model.problem)
        )
    return f"valid; the assistant's model is {model.name} ({model.path})"


def _check_folders() -> str:
    found = job_folders.problems()
    if not found:
        return "all can be read"
    what = job_folders.described(found)
    if all(problem.permissions for problem in found):
        raise UserError(
            phrase(
                "{what}. The jobs concerned wait for their folders. To restore the permissions: "
                "gpudeck doctor --repair",
                what=what,
            )
        )
    raise UserError(
        phrase(
            "{what}. The jobs concerned wait for their folders. Check the disk, and whether the "
            "folders belong to you",
            what=what,
        )
    )


def _repair_folders() -> str:
    """Restore the permissions of folders that their jobs, or their owner, closed."""
    found = job_folders.problems()
    if not found:
        return "all can be read"
    if left := job_folders.restore(found):
        raise UserError(
            phrase(
                "{what}. The permissions cannot be restored: check the disk, and "
                "whether the folders belong to you",
                what=job_folders.described(left),
            )
        )
    raise _CheckWarning(f"permissions were restored: {job_folders.described(found)} until now")


def _check_store() -> str:
    if daemon_status().running:
        return "in use by the daemon"
    from gpudeck.scheduler.store.repair import examine

    file = paths.store_file()
    if not file.exists():
        return "not created yet"
    if damage := examine(file, _job_folders()):
        raise UserError(
            phrase("{damage}. To save what is intact: gpudeck doctor --repair", damage=damage)
        )
    return f"intact ({file})"


def _repair_store() -> str:
    """Replace a damaged store by one with everything that is intact; no daemon may run."""
    from gpudeck.scheduler.store.repair import examine, rebuild

    in_use = phrase("the daemon is running and uses the store. Stop it first: gpudeck daemon stop")
    with hold_lock(paths.daemon_lock(), in_use):
        file = paths.store_file()
        damage = examine(file, _job_folders()) if file.exists() else ""
        if not damage:
            return "intact: there is nothing to repair"
        rescue = rebuild(file, _job_folders())
    result = f"{rescue.jobs} jobs were saved, none was lost"
    if rescue.lost:
        result = (
            f"{rescue.jobs} jobs were saved; lost: {list_job_ranges(rescue.lost)} "
            f"(their remaining files are in {paths.home() / 'jobs'})"
        )
    if rescue.changed:
        result += f"; their command or options were changed: {list_job_ranges(rescue.changed)}"
    if rescue.held:
        result += f"; held because their environment is missing: {list_job_ranges(rescue.held)}"
    raise _CheckWarning(
        f"the store was damaged ({damage}). {result}. The damaged file was kept: {rescue.kept}"
    )


def _job_folders() -> list[int]:
    """Return the numbers of the jobs that have a folder."""
    folders = (paths.home() / "jobs").glob("*")
    return [int(folder.name) for folder in folders if folder.name.isdigit()]


def _check_window() -> str:
    """Import the window in a process of its own, which missing libraries may end."""
    if missing_of("window"):
        return "not needed: the part 'window' is not installed"
    process = subprocess.run(
        [sys.executable, "-P", "-c", "import gpudeck.app.shell.window"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
    )
    if process.returncode:
        from gpudeck.app.widgets.qt_check import explain

        lines = process.stderr.strip().splitlines() or ["PySide6 cannot be imported"]
        raise UserError(explain(lines[-1]))
    return "present"


def _check_daemon() -> str:
    with Client() as client:
        notices = client.snapshot().notices
    if notices:
        raise _CheckWarning("; ".join(map(str, notices)))
    return f"running (pid {daemon_status().pid})"


def _check_devices() -> str:
    with Client() as client:
        snapshot = wait_for_reading(client)
    if not snapshot.devices:
        raise UserError(
            phrase("no device can be read. See the log: {log}", log=str(paths.daemon_log()))
        )
    names = Counter(state.device.name for state in snapshot.devices)
    listed = (f"{count} x {name}" if count > 1 else name for name, count in names.items())
    return f"{', '.join(listed)}; readings from {snapshot.source}"


def _check_suspension() -> str:
    """Ask the helper of the daemon, which calls the driver, in a process of its own."""
    capability = asyncio.run(_find_capability())
    if not capability.problem:
        return "possible"
    text = f"not possible: {describe_problem(capability)}"
    if capability.problem == "no driver":
        return text
    raise _CheckWarning(text)


async def _find_capability() -> Capability:
    helper = HelperProcess()
    try:
        return await helper.check()
    finally:
        await helper.stop()
