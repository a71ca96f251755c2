"""Opens the window, where that is possible."""

from __future__ import annotations

from app import qtcheck
from scheduler.errors import UserError


def run() -> int:
    """Open the window on the display and stay until it is closed. Returns the exit status.

    Raises UserError with one line where Qt's system libraries or the display are missing.
    """
    if (problem := qtcheck.problem()) is not None:
        raise UserError(problem)
    from app.desktop import open_window  # not before it is known that Qt can be loaded

    return open_window()
