"""Load the typefaces that come with the program, so that it looks the same on every machine."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QFontDatabase

from gpudeck.scheduler.protocol import paths

FAMILY = "GPU Deck Inter"
"""The typeface of everything except code; see assets/fonts."""
MONOSPACE = "GPU Deck Mono"
"""The typeface of logs, commands and code."""
_FILES = ("Inter-Regular", "Inter-SemiBold", "Mono-Regular")


def load(app: QCoreApplication) -> None:
    """Make the typefaces known to Qt, once for each application.

    Raises:
        RuntimeError: A file is missing or damaged.
    """
    if app.property("fonts"):
        return
    app.setProperty("fonts", True)
    for name in _FILES:
        file = paths.assets() / "fonts" / f"{name}.ttf"
        if QFontDatabase.addApplicationFont(str(file)) < 0:
            raise RuntimeError(f"the typeface {file} cannot be loaded; install GPU Deck again")
