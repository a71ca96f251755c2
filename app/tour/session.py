"""Run the real window without a display, for the tour, benchmarks and tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from PySide6.QtCore import QEventLoop, QTimer

from gpudeck.app.shell.desktop import Desktop
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.tour.render import render_pages, save_picture
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol import paths

if TYPE_CHECKING:
    from gpudeck.assistant.host_protocol import Answer

SIZE = (1280, 800)
"""Pixels of the window."""
_INTERVAL_MS = 20


class Session:
    """Run a window, whose event loop runs while the caller waits for something."""

    def __init__(self) -> None:
        app = theme.application()
        paths.ensure(paths.home())
        self._desktop = Desktop(app)
        self.window: MainWindow = self._desktop.window

    def __enter__(self) -> Self:
        self._desktop.start()
        self.window.resize(*SIZE)  # also where the platform has a smaller screen, or none
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._desktop.stop()

    def spin(self, seconds: float) -> None:
        """Run the event loop for a number of seconds."""
        self.until(lambda: False, seconds)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Run the event loop until `condition` holds; return False if it does not in `seconds`."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            loop = QEventLoop()
            QTimer.singleShot(_INTERVAL_MS, loop.quit)
            loop.exec()
        return True

    def picture(self, file: Path) -> None:
        """Save a picture of the window, or raise UserError if the file cannot be written."""
        self.window.refresh()
        self.spin(0.1)
        save_picture(self.window, file)

    def pictures(self, folder: Path) -> list[Path]:
        """Save pictures of every page, at two sizes, light and dark."""
        return render_pages(self.window, folder)

    def show_brief(self, answer: Answer) -> None:
        """Show a brief that was not requested through the window in its conversation."""
        from gpudeck.app.assistant.requests import finished  # only the tour needs it

        self.window.assistant.show_answer("Write a brief.", finished(answer))
