"""Say that a part of GPU Deck is not installed."""

from __future__ import annotations

from gpudeck.app.language.texts import tr
from gpudeck.extras import Missing


def missing_text(missing: Missing) -> str:
    """Return what is missing and the command that installs it, in the window's language."""
    return tr(
        "{package} is not installed. Install the part “{extra}” of GPU Deck with: {command}",
        package=missing.package,
        extra=missing.extra,
        command=missing.command,
    )
