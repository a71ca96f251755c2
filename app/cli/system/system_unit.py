"""Run one daemon for all users of this machine, at boot by systemd where there is one.

It runs as root, as jobs run as who submitted them. So everything that it executes must be root's:
whoever may write to its Python would be root.
"""

from __future__ import annotations

import grp
import os
import stat
import sys
from pathlib import Path

from gpudeck.app.cli.system import init_script
from gpudeck.app.cli.system.boot_unit import Installed, not_started, quoted, service_lines
from gpudeck.language.text import phrase
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.executors import lock_places
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.wire import ADMINS, MEMBERS

UNIT_FILE = Path("/etc/systemd/system/gpudeck.service")


def unit_text() -> str:
    """Return the unit of the shared daemon."""
    return f"""\
# Written by: gpudeck daemon install --system
[Unit]
Description=GPU Deck: job queue and monitor of all users
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Environment={quoted(f"GPUDECK_HOME={paths.shared_home()}")}
Environment="GPUDECK_SYSTEM=1"
ExecStart={quoted(sys.executable)} -P -m gpudeck.scheduler.daemon
WorkingDirectory=/
{service_lines()}
[Install]
WantedBy=multi-user.target
"""


def prepare() -> None:
    """Make the groups. Raises UserError where this is not root, or root would run others' code."""
    if os.getuid() != 0:
        raise UserError(phrase("only root runs the shared daemon: name the command after sudo"))
    for place in (Path(sys.executable).resolve(), Path(paths.__file__).parents[2]):
        check_trusted(place)
    for group in (_members(), ADMINS):
        _make_group(group)


def install() -> Installed:
    """Make the groups, and have systemd or a script of /etc/init.d run the daemon.

    Raises UserError where that is impossible.
    """
    prepare()
    done = _install_unit() if unit.BOOTED.exists() else init_script.install()
    members = (
        f"Let a user in with: usermod -aG {_members()} NAME, and make one an administrator with: "
        f"usermod -aG {ADMINS} NAME. They have to log in anew"
    )
    return done._replace(notes=(members, *done.notes))


def _install_unit() -> Installed:
    """Write the unit and start it. Raises UserError where that is impossible."""
    try:
        UNIT_FILE.write_text(unit_text())
        UNIT_FILE.chmod(0o644)
    except OSError as e:
        raise UserError(
            phrase(
                "the unit {file} cannot be written: {error}",
                file=str(UNIT_FILE),
                error=str(e.strerror),
            )
        ) from e
    problem = unit.run("systemctl", "daemon-reload") or unit.run(
        "systemctl", "enable", "--now", UNIT_FILE.name
    )
    notes = (not_started(problem),) if problem else ()
    return Installed(str(UNIT_FILE), not problem, notes)


def install_locks(*, mixed: bool) -> Installed:
    """Make the place in which only members lock GPUs. Raises UserError where that is impossible.

    Args:
        mixed: queues are left that lock GPUs in the file which everybody can open.
    """
    place, group = paths.MEMBERS_LOCKS, _members()
    if os.getuid() != 0:
        raise UserError(
            phrase(
                "only root makes {place}: sudo gpudeck daemon install --locks mixed",
                place=str(place),
            )
        )
    _make_group(group)
    try:
        lock_places.make_place(place, grp.getgrnam(group).gr_gid, mixed=mixed)
    except OSError as e:
        raise UserError(
            phrase("{place} cannot be made: {error}", place=str(place), error=str(e.strerror))
        ) from e
    if mixed:
        first = (
            f"Members of the group {group} lock GPUs in {place} and in {lock_places.EVERYBODY}, "
            "which other users can hold"
        )
        then = (
            "Let the users of GPUs in with: usermod -aG "
            f"{group} NAME. Once all are members and no queue of an older version runs: "
            "gpudeck daemon install --locks members"
        )
    else:
        first = f"Only members of the group {group} lock GPUs, in {place}"
        then = "Queues of other users get no GPU"
    again = "A queue that runs locks as before until it starts anew: gpudeck daemon stop"
    return Installed(str(place), False, (first, then, again))


def _members() -> str:
    """Return the group of the users who are let in."""
    return os.environ.get("GPUDECK_GROUP") or MEMBERS


def _make_group(name: str) -> None:
    if problem := unit.run("groupadd", "--system", "--force", name):
        raise UserError(
            phrase("the group {name} cannot be made: {problem}", name=name, problem=problem)
        )


def check_trusted(place: Path) -> None:
    """Raise UserError where anybody but root may change what root would execute."""
    for part in (place, *place.parents):
        found = part.stat()
        sticky = found.st_mode & stat.S_ISVTX
        open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky
        if found.st_uid != 0 or open_to_others:
            raise UserError(
                phrase(
                    "{part} can be changed by other users than root, who would "
                    "become root by that. Install GPU Deck for all users, for "
                    "example in /opt/gpudeck, and run that",
                    part=str(part),
                )
            )


def uninstall() -> Installed:
    """Stop the shared daemon and remove what starts it. Raises UserError."""
    if os.getuid() != 0:
        raise UserError(phrase("only root removes the shared daemon"))
    note = f"Its jobs and their outputs stay in {paths.shared_home()}, and its groups stay"
    if init_script.SCRIPT.exists():
        return init_script.uninstall()._replace(notes=(note,))
    if not UNIT_FILE.exists():
        raise UserError(
            phrase("there is no unit {file}, so nothing was removed", file=str(UNIT_FILE))
        )
    unit.run("systemctl", "disable", "--now", UNIT_FILE.name)
    try:
        UNIT_FILE.unlink()
    except OSError as e:
        raise UserError(
            phrase(
                "the unit {file} cannot be removed: {error}",
                file=str(UNIT_FILE),
                error=str(e.strerror),
            )
        ) from e
    unit.run("systemctl", "daemon-reload")
    return Installed(str(UNIT_FILE), False, (note,))
