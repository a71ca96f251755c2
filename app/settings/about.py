"""Where things are and what runs, for the settings page."""

from __future__ import annotations

from app import __version__
from app.state import State
from scheduler.protocol import paths


def about(state: State) -> tuple[tuple[str, str], ...]:
    """Caption and value."""
    return (
        ("Version", f"GPU Deck {__version__}"),
        ("State folder", str(paths.home())),
        ("Daemon", _daemon(state)),
        ("Source", state.snapshot.source if state.snapshot else "not known yet"),
    )


def _daemon(state: State) -> str:
    try:
        pid = paths.daemon_lock().read_text().strip()
    except (OSError, ValueError):
        pid = ""
    return (
        f"{state.link.text}, pid {pid}"
        if state.link.connected and pid.isdigit()
        else state.link.text
    )
