"""Take pictures of every page of the window, at every size, in every color scheme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QSize
from PySide6.QtWidgets import QApplication

from gpudeck.app.shell.window import PAGES, MainWindow
from gpudeck.app.widgets import theme
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

SIZES = ((1280, 800), (2560, 1440))
SCHEMES: tuple[theme.Scheme, ...] = ("light", "dark")


def render_pages(
    window: MainWindow,
    folder: Path,
    sizes: Sequence[tuple[int, int]] = SIZES,
    schemes: Sequence[theme.Scheme] = SCHEMES,
) -> list[Path]:
    """Save a picture of each view as VIEW-SCHEME-WIDTHxHEIGHT.png, and return the files.

    Raises:
        UserError: A file cannot be written.
    """
    app = QApplication.instance()
    if not isinstance(app, QApplication):
        raise RuntimeError("render_pages needs a QApplication")
    folder.mkdir(parents=True, exist_ok=True)
    window.show()
    made = []
    for scheme in schemes:
        theme.apply(app, scheme)
        for width, height in sizes:
            window.resize(QSize(width, height))
            for view in PAGES:
                window.show_page(view)
                _settle()
                window.refresh()  # charts reduce their data to their width, which has just been set
                _settle()
                file = folder / f"{view}-{scheme}-{width}x{height}.png"
                save_picture(window, file)
                made.append(file)
    return made


def save_picture(window: MainWindow, file: Path) -> None:
    """Save the window as a PNG, or raise UserError if the file cannot be written."""
    if not window.grab().save(str(file)):
        raise UserError(
            phrase("cannot write {file}. Choose a folder you can write to.", file=str(file))
        )


def _settle() -> None:
    """Process pending layouts, deletions and repaints."""
    for _ in range(3):
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
