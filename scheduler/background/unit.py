"""The unit by which the user's own systemd runs the daemon, where one was installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from gpudeck.scheduler.protocol import paths

UNIT = "gpudeck.service"
BOOTED = Path("/run/systemd/system")
"""Exists where systemd is the first process of this machine."""
_TIMEOUT_S = 60.0


def unit_file() -> Path:
    """Return where the unit of this user is kept."""
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "systemd" / "user" / UNIT


def is_installed() -> bool:
    """Return whether there is a unit that runs the daemon of the present state folder."""
    try:
        text = unit_file().read_text()
    except (OSError, UnicodeDecodeError):
        return False
    # as `boot_unit` writes it, which quotes it for systemd
    return BOOTED.exists() and f'GPUDECK_HOME={paths.home()}"\n' in text.replace("%%", "%")


def systemctl(*words: str) -> str:
    """Ask the user's systemd, and return why it refuses; empty where it does not."""
    return run("systemctl", "--user", *words)


def systemd_version() -> int:
    """Return the version of systemd; 0 where that is unknown."""
    try:
        done = subprocess.run(
            ["systemctl", "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"systemd (\d+)", done.stdout)
    return int(found[1]) if found else 0


def run(*command: str) -> str:
    """Run a command, and return the last line of its error; empty where it succeeded."""
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except FileNotFoundError:
        return f"there is no command {command[0]}"
    except subprocess.TimeoutExpired:
        return f"{command[0]} does not answer"
    if ended.returncode == 0:
        return ""
    lines = ended.stderr.strip().splitlines()
    return lines[-1] if lines else f"{command[0]} ended with status {ended.returncode}"
