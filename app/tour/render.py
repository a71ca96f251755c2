"""Pictures of the window: every page, at every size, in every scheme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QEvent, QSize
from PySide6.QtWidgets import QApplication

from app.shell.window import PAGES, MainWindow
from app.widgets import theme
from scheduler.protocol.errors import UserError

VIEWS = (*PAGES, "models")
"""The pages, and what is seen within one of them."""
SIZES = ((1280, 800), (2560, 1440))
SCHEMES: tuple[theme.Scheme, ...] = ("light", "dark")


def render_pages(
    window: MainWindow,
    folder: Path,
    sizes: Sequence[tuple[int, int]] = SIZES,
    schemes: Sequence[theme.Scheme] = SCHEMES,
) -> list[Path]:
    """Show each of VIEWS, let it lay out and paint, and save it as VIEW-SCHEME-WIDTHxHEIGHT.png.

    Returns the files. Raises UserError where one cannot be written.
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
            for view in VIEWS:
                _show(window, view)
                _settle()
                window.refresh()  # a chart's decimation depends on the width it was given
                _settle()
                file = folder / f"{view}-{scheme}-{width}x{height}.png"
                save_picture(window, file)
                made.append(file)
    return made


def _show(window: MainWindow, view: str) -> None:
    if view == "models":
        window.show_page("assistant")
        window.assistant.show_models()
    else:
        window.show_page(view)
        window.assistant.show_talk()


def save_picture(window: MainWindow, file: Path) -> None:
    """The window as it is now, as a PNG. Raises UserError where it cannot be written."""
    if not window.grab().save(str(file)):
        raise UserError(f"cannot write {file}. Choose a folder you can write to.")


def _settle() -> None:
    """Let layouts, deferred deletions and repaints happen."""
    for _ in range(3):
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
