"""Open every page at several sizes of window and text, and list what is cut off, overlaps or needs
to be scrolled sideways.

    python -m tests.gui.scales [--points 8,10,14,18] [--language de] [--out DIR]

The scale of the screen is that of QT_SCALE_FACTOR. The screen has 1920 x 1080 pixels, so the
smallest window is half of it, as when it is snapped to one side. With --out the pictures are
written to DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SCREEN = (1920, 1080)
PASSES = 6
"""Passes of the loop of events in which every page is laid out."""


def offscreen(folder: Path) -> None:
    """Let Qt draw on a screen of that size without showing it. Call it before Qt is loaded."""
    file = folder / "screen.json"
    screen = {"name": "one", "x": 0, "y": 0, "width": SCREEN[0], "height": SCREEN[1]}
    file.write_text(json.dumps({"screens": [{**screen, "logicalDpi": 96, "logicalBaseDpi": 96}]}))
    os.environ["QT_QPA_PLATFORM"] = f"offscreen:configfile={file}"


def faults(points: float, out: Path | None) -> Iterator[str]:
    """Yield what is wrong with the pages where text has this size."""
    from PySide6.QtCore import QCoreApplication, QEvent, QSize
    from PySide6.QtWidgets import QApplication

    from gpudeck.app.link.call import Call
    from gpudeck.app.link.link import Link
    from gpudeck.app.models.requests import FindServed, ListModels
    from gpudeck.app.shell.window import PAGES, SMALLEST, MainWindow
    from gpudeck.app.widgets import theme
    from gpudeck.scheduler.protocol.devices import Detail
    from gpudeck.scheduler.verbs.devices import GetDetails
    from tests.gui import served, snapshots
    from tests.gui.readable import clipped, overlapping, sideways
    from tests.gui.test_processes_page import DRAW, TRAIN

    app = QApplication.instance()
    assert isinstance(app, QApplication)

    def settle() -> None:
        """Lay out the window: each pass carries a changed height one layout further up."""
        for _ in range(PASSES):
            app.processEvents()

    class Silent(Link):
        """Answer nothing but what the processes and the models are."""

        def start(self, call: Call) -> None:
            if isinstance(call.request, GetDetails):
                ids = [state.device.id for state in window.state.snapshot.devices]
                call.reply((Detail(ids[0], snapshots.NOW, (), (TRAIN, DRAW)),))
            elif isinstance(call.request, ListModels):
                call.reply(served.MODELS)
            elif isinstance(call.request, FindServed):
                call.reply(served.NOW)

    theme.set_text_size(app, points)
    theme.apply(app, "light")
    window = MainWindow(Silent())
    window.show_snapshot(snapshots.gpu_snapshot(8))
    window.show()
    room = window.screen().availableSize()
    sizes = {
        "smallest": window.minimumSize(),
        "left half": QSize(room.width() // 2, room.height()),
        "whole": room,
    }
    for name, size in sizes.items():
        window.resize(size)
        for page in (*PAGES, "welcome", "device"):
            getattr(window, f"show_{page}", lambda page=page: window.show_page(page))(
                *([window.state.snapshot.devices[0].device.id] if page == "device" else [])
            )
            settle()
            window.refresh()
            settle()
            where = f"{points:g} pt, {name}, {page}"
            if out is not None:
                window.grab().save(str(out / f"{where.replace(', ', '-').replace(' ', '')}.png"))
            have = window.size()
            if have.width() > room.width() or have.height() > room.height():
                yield f"{where}: {have} on a screen of {room}"
            if have != size:
                yield f"{where}: the window has {have} instead of {size}"
            yield from (f"{where}: cut off: {text}" for text in clipped(window))
            if window.width() >= SMALLEST.width():  # else the screen has too little room
                yield from (f"{where}: scrolled sideways: {area}" for area in sideways(window))
            yield from (f"{where}: overlap: {text}" for text in overlapping(window))
    window.close()
    window.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gui.scales")
    parser.add_argument("--points", default="8,10,14,18")
    parser.add_argument("--language", choices=("en", "de", "fr", "es"), default="en")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        os.environ["GPUDECK_HOME"] = made
        offscreen(Path(made))
        from gpudeck.app.language import texts
        from gpudeck.app.widgets import theme

        texts.use(arguments.language)
        app = theme.application()
        found = [
            fault
            for points in map(float, arguments.points.split(","))
            for fault in faults(points, arguments.out)
        ]
        print(*found, sep="\n")
        print(f"{len(found)} faults at scale {app.primaryScreen().devicePixelRatio():g}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
