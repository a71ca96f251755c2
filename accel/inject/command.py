"""Make the command that runs a script with its attention linked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def injected(argv: Sequence[str]) -> list[str]:
    """Return the command that runs a Python script with its attention linked.

    Raises:
        ValueError: if the command is no Python script.
    """
    place = 1
    while place < len(argv) and argv[place].startswith("-"):
        if argv[place] in ("-m", "-c", "-"):
            break
        place += 2 if argv[place] in ("-W", "-X") else 1
    python = re.fullmatch(r"python[0-9.]*", Path(argv[0]).name)
    if not python or place >= len(argv) or argv[place].startswith("-"):
        raise ValueError(
            "attention can be linked in a Python script only, as in: python train.py; in another"
            " program, call accel.inject.on() before it imports its model"
        )
    return [*argv[:place], "-m", "gpudeck.accel.inject.script", *argv[place:]]
