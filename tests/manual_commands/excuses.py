"""Say why some commands of the manual cannot be run by a program on any machine."""

from __future__ import annotations

import re
from typing import NamedTuple


class Excuse(NamedTuple):
    """Say why commands are not run."""

    pattern: str
    """What is found in these commands, as a regular expression."""
    reason: str


EXCUSES = (
    Excuse(r"^make (run|test)\b", "it installs for minutes what runs this already"),
    Excuse(r"^\.venv/bin/gpudeck", "it is there after `make run` only"),
    Excuse(
        r"^(pipx|pip|uv) ",
        "it needs the network; tests/contract/test_installed.py installs each part",
    ),
    Excuse(r"^sudo ", "it needs root"),
    Excuse(r"^gpudeck daemon uninstall", "it changes the systemd of whoever runs this"),
    Excuse(r"^gpudeck (host (add|test|remove)|--host) ", "it needs another machine"),
    Excuse(r"^gpudeck (cluster add|submit --on) ", "it needs a cluster"),
    Excuse(r"exec docker run|--container", "it needs an image and a GPU"),
    Excuse(
        r"^gpudeck (notify (add|test)|submit .*--notify|edit .*--notify)",
        "it needs a server that takes messages",
    ),
    Excuse(r"^gpudeck (notebook|shell)", "it needs Jupyter or a terminal"),
    Excuse(r"^gpudeck cancel 12", "the job is a notebook"),
    Excuse(r"^gpudeck restore", "it asks; tests/integration/test_backup.py runs it"),
    Excuse(r"^gpudeck config (check|apply) ", "it needs a file of settings"),
    Excuse(r"^gpudeck limits ", "it needs a shared daemon"),
    Excuse(r"conda run|-- uv run", "it needs conda or uv"),
    Excuse(r"^gpudeck (suspend|resume) (--pid|12)", "it needs a program on a GPU"),
    Excuse(r"^gpudeck (ask --)?when-idle", "it waits for an idle GPU"),
    Excuse(r"^gpudeck free|resumable TERM|preemptible|urgent.py", "it needs a GPU"),
    Excuse(r"^gpudeck submit --gpus 2 -- torchrun", "it needs two GPUs"),
    Excuse(
        r"^gpudeck (search (judge|tune|install|remove)|submit -- gpudeck search)",
        "it needs a kernel; tests/unit/accel/search runs it",
    ),
    Excuse(r"^gpudeck run search ", "it searches for ten minutes"),
    Excuse(r"^gpudeck run attention seq=16384", "it takes minutes without a GPU"),
)


def excuse_of(command: str) -> Excuse | None:
    """Return why a command is not run; None where it is."""
    return next((e for e in EXCUSES if re.search(e.pattern, command)), None)
