"""Have systemd start the daemon at boot, or print how to do without systemd.

The unit belongs to the user's own systemd (`systemctl --user`). Without lingering, that one ends at
the user's last logout together with everything that it started, so the unit is installed only where
lingering is on.
"""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.background import unit
from gpudeck.scheduler.executors import cgroups
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

LINGER = Path("/var/lib/systemd/linger")
"""Holds a file for each user whose processes are started at boot, and live on after logout."""
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")
"""What the daemon needs of the environment, for the commands of clusters and the driver."""
_SUBGROUP_SINCE = 254
"""The version of systemd that can start a daemon below the group that it delegates."""


class Installed(NamedTuple):
    """Describe what was installed or removed, and what the user has to know."""

    file: str
    active: bool
    """Systemd runs the daemon now."""
    notes: tuple[Message, ...]


def not_started(why: str) -> Text:
    """Return the note that the daemon starts at the next boot only."""
    return phrase("It could not be started now: {why}", why=why)


def _link() -> Path:
    """Return the link that has systemd start the unit, as `systemctl enable` makes it."""
    return unit.unit_file().parent / "default.target.wants" / unit.UNIT


def unit_text() -> str:
    """Return the unit for the present state folder.

    Stopping it ends the daemon alone (KillMode), as jobs outlive the daemon, and neither does a job
    that runs out of memory end it (OOMPolicy). Jobs are not limited in their number of threads. The
    daemon has a group beside those of its jobs, so that these can be limited (DelegateSubgroup).
    """
    environment = {"GPUDECK_HOME": str(paths.home())}
    environment |= {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)}
    variables = "\n".join(
        f"Environment={quoted(f'{name}={value}')}" for name, value in environment.items()
    )
    log = str(paths.daemon_log()).replace("%", "%%")
    return f"""\
# Written by: gpudeck daemon install
[Unit]
Description=GPU Deck: job queue and monitor
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
{variables}
ExecStart={quoted(sys.executable)} -P -m gpudeck.scheduler.daemon
WorkingDirectory=/
StandardError=append:{log}
{service_lines()}
[Install]
WantedBy=default.target
"""


def service_lines() -> str:
    """Return what both units say of their service: when it is restarted, that its end leaves jobs
    running, and that it may have control groups for them.
    """
    # an older systemd would warn of it at each start
    apart = unit.systemd_version() >= _SUBGROUP_SINCE
    subgroup = f"DelegateSubgroup={cgroups.SUBGROUP}\n" if apart else ""
    return f"""\
Restart=on-failure
RestartSec=5
UMask=0077
KillMode=process
OOMPolicy=continue
TasksMax=infinity
Delegate=yes
{subgroup}"""


def quoted(text: str) -> str:
    """Quote a word for systemd (see systemd.syntax(7))."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    escaped = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped)
    return f'"{escaped}"'


def install() -> Installed:
    """Write the unit, enable it and start it. Raises UserError where that is impossible."""
    command = shlex.join([sys.executable, "-P", "-m", "gpudeck", "daemon", "start"])
    if not unit.BOOTED.exists():
        line = f"@reboot GPUDECK_HOME={shlex.quote(str(paths.home()))} {command}"
        line = line.replace("%", "\\%")  # which ends the command, even between quotes
        raise UserError(
            phrase(
                "this machine does not run systemd. To start the daemon at boot, add "
                "this line with `crontab -e`: {line}",
                line=line,
            )
        )
    file, text = unit.unit_file(), unit_text()
    if file.exists() and f"GPUDECK_HOME={paths.home()}" not in file.read_text().replace("%%", "%"):
        raise UserError(
            phrase(
                "{file} starts the daemon of another state folder. To remove it: "
                "gpudeck daemon uninstall",
                file=str(file),
            )
        )
    notes = [_linger()]
    try:
        _link().parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        _link().unlink(missing_ok=True)
        _link().symlink_to(file)
    except OSError as e:
        raise UserError(
            phrase(
                "the unit {file} cannot be written: {error}", file=str(file), error=str(e.strerror)
            )
        ) from e
    problem = unit.systemctl("daemon-reload") or unit.systemctl("start", unit.UNIT)
    if problem:
        notes.append(f"It could not be started now ({problem}); systemd starts it at the next boot")
    return Installed(str(file), not problem, tuple(notes))


def _linger() -> str:
    """Return a note on lingering, after turning it on. Raises UserError where that fails."""
    user = getpass.getuser()
    if (LINGER / user).exists():
        return "Lingering is on: systemd starts your units at boot and keeps them after logout"
    if problem := unit.run("loginctl", "enable-linger", user):
        raise UserError(
            phrase(
                "lingering is off, so systemd would start nothing at boot, and would "
                "end the daemon and its jobs at your last logout. It cannot be "
                "turned on ({problem}). Ask an administrator for: loginctl "
                "enable-linger {user}",
                problem=problem,
                user=user,
            )
        )
    return (
        "Lingering was turned on: systemd starts your units at boot and keeps them after logout. "
        "To turn it off: loginctl disable-linger"
    )


def uninstall() -> Installed:
    """Remove the unit. Raises UserError where there is none, or it cannot be removed."""
    file = unit.unit_file()
    if not file.exists():
        raise UserError(phrase("there is no unit {file}, so nothing was removed", file=str(file)))
    unit.systemctl("stop", unit.UNIT)
    try:
        _link().unlink(missing_ok=True)
        file.unlink()
    except OSError as e:
        raise UserError(
            phrase(
                "the unit {file} cannot be removed: {error}", file=str(file), error=str(e.strerror)
            )
        ) from e
    unit.systemctl("daemon-reload")
    note = "Lingering was not changed. To turn it off: loginctl disable-linger"
    return Installed(str(file), False, (note,))
