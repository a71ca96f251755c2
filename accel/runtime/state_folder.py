"""Find the folder that keeps what was measured or compiled on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Return GPU Deck's state folder, by the rule of `gpudeck.scheduler.protocol.paths.home`.

    It is $GPUDECK_HOME, else $XDG_STATE_HOME/gpudeck, else ~/.local/state/gpudeck, also where that
    is on a network file system: what is kept here needs no locks.
    """
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    chosen = os.environ.get("GPUDECK_HOME") or Path(base) / "gpudeck"
    return Path(chosen).expanduser().absolute()
