"""Make full-size pictures of every page, with one and with eight GPUs, to look at and judge.

    python -m tests.gui.page_pictures [--out DIR] [--gpus 1,8] [--sizes 1280x800,1920x1080]
        [--points 10] [--language en] [--schemes light,dark] [--only PAGE,…]

A file is called GPUS-PAGE-SIZE-SCHEME.png. With QT_QPA_PLATFORM=xcb the window is one of X11,
otherwise Qt draws it without a screen. The recorded readings are shown as those of live GPUs with
jobs, as the window looks all day. The page for browsers is drawn by Chromium where that is
installed, and says that the readings are recorded.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QWidget

import tests.gui.drawing  # noqa: F401 # before Qt starts
from gpudeck.app.jobs.usage_panel import ReadUsage
from gpudeck.app.language import texts
from gpudeck.app.shell.window import PAGES
from gpudeck.app.widgets import theme
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Failed
from gpudeck.scheduler.verbs.devices import GetDetails
from gpudeck.scheduler.verbs.submit import Foresee
from tests.gui import live, world
from tests.gui.pictures import VIEWS, Stage, stage
from tests.integration.browser import Browser
from tests.support import eventually

Show = Callable[[Stage], QWidget | None]


def _failed(on: Stage) -> None:
    """Show a job that failed, with the cause and what to do."""
    on.window.show_page("jobs")
    job = next(j for j in reversed(on.jobs) if isinstance(j.state, Failed))
    on.window.jobs.show_job(job.id)
    on.until(lambda: "searching" not in on.window.jobs.count.text())


def _training(on: Stage) -> None:
    """Show the curves that a job printed."""
    on.window.show_page("jobs")
    on.window.jobs.show_job(next(j for j in reversed(on.jobs) if j.spec.name.startswith("fine")).id)


def _form(on: Stage) -> None:
    """Show the form of a new job, filled in."""
    on.window.show_page("jobs")
    on.window.jobs.new.click()
    form = on.window.jobs.form
    form.editors["command"].setText("python -m llama.pretrain --config 8b.yaml")
    form.editors["cwd"].setPlaceholderText("/home/ada/llama")
    on.until(lambda: bool(form.said.text()))


def _usage(on: Stage) -> None:
    """Show what each person's jobs used."""
    on.window.show_page("jobs")
    on.window.jobs.open_usage.click()


def _chosen_process(on: Stage) -> None:
    """Show the processes, and one of them with its history."""
    VIEWS[1]["processes"](on)
    on.window.processes.table.selectRow(0)
    on.settle()
    on.window.processes.refresh()


def _past_processes(on: Stage) -> None:
    """Show who used the GPUs in the last day."""
    on.window.show_page("processes")
    on.window.processes.span.setCurrentIndex(2)


def _palette(on: Stage) -> None:
    on.window.show_page("dashboard")
    palette = on.window.commands.palette
    if not palette.isVisible():
        palette.open()
    palette.box.setText("job")
    palette.show_entries()


EXTRA: dict[str, Show] = {
    "failed": _failed,
    "training": _training,
    "form": _form,
    "usage": _usage,
    "process": _chosen_process,
    "past-processes": _past_processes,
    "palette": _palette,  # at the end: it lies over the page
}
SCREENS = {"wide": (1440, 900), "phone": (390, 844)}
"""Pixels of the browser's page."""
_DRAWN_S = 2.0
"""Seconds in which the browser draws the history of each device."""
_TRAIN = """
import json, time
for step in range(400):
    print(json.dumps({"step": step, "loss": 4 / (step + 9) ** 0.5, "lr": 1e-4 * step / 400}))
print("waits for data", flush=True)
time.sleep(600)
"""


def draw(on: Stage, count: int, size: tuple[int, int], scheme: theme.Scheme, out: Path,
         only: frozenset[str]) -> int:  # fmt: skip
    """Show every page in this size and scheme, and return how many pictures were written."""
    theme.apply(on.app, scheme)
    on.window.resize(*size)
    made = 0
    shows = {name: VIEWS[1].get(name, lambda o, n=name: o.window.show_page(n)) for name in PAGES}
    shows |= VIEWS[1] | VIEWS[count] | EXTRA
    del shows["workloads"]  # which is shown by its workloads
    for name, show in shows.items():
        if only and name not in only:
            continue
        on.restore()
        widget = show(on) or on.window
        snapshot = on.window.state.snapshot
        assert snapshot is not None
        on.window.state.snapshot = live.held(snapshot)
        on.settle()
        file = out / f"{count}-{name}-{size[0]}x{size[1]}-{scheme}.png"
        made += widget.grab().save(str(file))
        _put_back(on)
    return made


def _put_back(on: Stage) -> None:
    """Undo what a view leaves on its page."""
    on.restore()
    on.window.commands.palette.leave()
    on.desktop.compact.hide()
    on.window.jobs.as_timeline.setChecked(False)
    on.window.jobs.form.closed.emit()
    on.window.jobs.usage.closed.emit()
    on.window.processes.span.setCurrentIndex(0)
    on.window.processes.table.clearSelection()
    on.window.dashboard.compare(False)
    on.window.dashboard.point(None)
    on.window.dashboard.show_last(600)


def browse(count: int, scheme: theme.Scheme, out: Path) -> int:
    """Show the page for browsers while jobs without a GPU run, and one of them."""
    with tempfile.TemporaryDirectory() as profile, Client() as deck:
        (Path(profile) / "train.py").write_text(_TRAIN)
        command = ("python3", "train.py", "--steps", "400")
        job = deck.submit(command, gpus=0, name="train-small", cwd=profile)
        web = subprocess.Popen(
            (sys.executable, "-m", "gpudeck", "web", "--port", "0"),
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert web.stdout is not None
        link = web.stdout.readline().split()[-1]
        try:
            with Browser(Path(profile)) as browser:
                browser.open(link)
                time.sleep(_DRAWN_S)
                browser.picture()  # with the slow clock, Chromium loads the fonts only for it
                for name, screen in SCREENS.items():
                    browser.emulate(*screen, scheme)
                    browser.open(link)
                    eventually(lambda: "train-small" in browser.text(".jobs .group"))
                    time.sleep(_DRAWN_S)
                    picture = out / f"{count}-web-{name}-{scheme}.png"
                    picture.write_bytes(browser.picture())
                    browser.run("document.querySelector('.jobs .job').click()")
                    eventually(lambda: "waits for data" in browser.text(".log"))
                    picture = out / f"{count}-web-job-{name}-{scheme}.png"
                    picture.write_bytes(browser.picture())
                    browser.run("location.hash = '#/'")
        finally:
            web.terminate()
            web.wait(30)
            deck.cancel(job.id)
    return 2 * len(SCREENS)


def _size(text: str) -> tuple[int, int]:
    width, height = text.split("x")
    return int(width), int(height)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gui.page_pictures")
    parser.add_argument("--out", type=Path, default=Path("build/pages"))
    parser.add_argument("--gpus", default="1,8")
    parser.add_argument("--sizes", default="1280x800,1920x1080")
    parser.add_argument("--points", type=float, default=theme.POINTS)
    parser.add_argument("--language", choices=texts.LANGUAGES, default="en")
    parser.add_argument("--schemes", default="light,dark")
    parser.add_argument("--only", default="", help="names of pages; web is the page for browsers")
    given = parser.parse_args()
    texts.use(given.language)
    given.out.mkdir(parents=True, exist_ok=True)
    app = theme.application()
    theme.set_text_size(app, given.points)
    only, made = frozenset(given.only.split(",")) - {""}, 0
    for count in map(int, given.gpus.split(",")):
        with stage(app, count) as on:
            on.plain = live.as_live(on.plain, on.jobs[-1].id)
            on.replies = {
                Foresee: live.forecast(on.plain),
                GetDetails: live.owned(world.inspected(on.newest_readings()), on.plain),
                ReadUsage: live.usage(),
            }
            on.restore()
            for scheme in given.schemes.split(","):
                for size in map(_size, given.sizes.split(",")):
                    made += draw(on, count, size, scheme, given.out, only)
                if (not only or "web" in only) and shutil.which("chromedriver"):
                    made += browse(count, scheme, given.out)
    print(f"{made} pictures in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
