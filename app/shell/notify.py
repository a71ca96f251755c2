"""Notifications of the desktop, by the command that desktops bring for it.

Not by QtDBus: PySide6 cannot send the unsigned number that org.freedesktop.Notifications wants. Not by an icon in the tray: it would
stay there with nothing to do, and many desktops have no tray.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from html import escape

COMMAND = "notify-send"
_PATIENCE_S = 10.0


def notify(title: str, text: str = "") -> bool:
    """Show a notification; returns at once. False where this machine has no command for it."""
    if (command := shutil.which(COMMAND)) is None:
        return False
    # the text may come from a job: desktops read markup in it
    words = [command, "--app-name=GPU Deck", "--", title, escape(text, quote=False)]
    threading.Thread(target=_run, args=(words,), name="notify", daemon=True).start()
    return True


def _run(words: list[str]) -> None:
    try:
        subprocess.run(
            words, check=False, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # a desktop that shows no notification is no trouble of the job or the GPU
