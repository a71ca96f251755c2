"""Run the steps of the tour in the real window: watch, run attention, train, brief, pictures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gpudeck.app.cli.output import clear_progress, print_line, show_progress
from gpudeck.app.format.job_rows import describe
from gpudeck.app.report.file import save_report
from gpudeck.app.shell.window import PAGES
from gpudeck.app.tour.results import DURING, TRAINED, Brief, Live, Tour, compare, losses_of
from gpudeck.app.tour.session import Session
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.reports.report import unpacked
from gpudeck.language.text import Span, Text, join_texts, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.snapshot import DeviceState, Snapshot
from gpudeck.version import VERSION

WATCH_S = 3.0
"""Seconds of watching before the job, so that the charts show the state before it."""
PAGE_S = 0.5
"""Seconds that a page is shown before its picture is taken, so that its data has arrived."""
START_S = 30.0
JOB_S = 3600.0
BRIEF_S = 10.0
"""The longest wait for a GPU before the model writes the brief on the CPU."""
LOG_INTERVAL_S = 10.0
"""Seconds between two lines of progress where there is no terminal."""
TRAINING = {"model": "tiny", "steps": "60", "batch": "8", "tokens": "128", "compile": "no"}
"""What the tour trains: on two cores of a CPU, it takes less than a minute."""
PICTURE_AT = 0.7
"""The share of the timed loop after which the dashboard is pictured."""

T = TypeVar("T")


class StepPrinter:
    """Print the steps of the tour, and its progress."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._step = 0
        self._printed_at = 0.0

    def step(self, text: str) -> None:
        """Print the beginning of the next step."""
        self._step += 1
        if not self._quiet:
            print_line(f"{self._step}. {text}")

    def detail(self, text: str) -> None:
        """Print a line within a step."""
        if not self._quiet:
            print_line(f"   {text}")

    def progress(self, text: str) -> None:
        """Show progress on a terminal; elsewhere, print it from time to time."""
        if self._quiet:
            return
        show_progress(f"    {text}")
        if not sys.stderr.isatty() and time.monotonic() - self._printed_at >= LOG_INTERVAL_S:
            self._printed_at = time.monotonic()
            self.detail(text)


class TourSteps:
    """Run the steps of the tour while the window's event loop runs."""

    def __init__(self, session: Session, out: Path, quiet: bool) -> None:
        self._session, self._out = session, out
        self._print = StepPrinter(quiet)
        self._window = session.window
        self._state = self._window.state
        self._pictures: list[Path] = []

    def take_pictures(self) -> list[str]:
        """Take pictures of all pages as they are, and return the names of the files."""
        self._connect()
        for page in PAGES:
            self._window.show_page(page)
            self._session.spin(PAGE_S)
        return self._picture_all()

    def run(self) -> Tour:
        """Run all steps, and return their results."""
        started = time.time()
        before = self._connect()
        self._watch(before.devices)
        job = self._run_attention()
        live = self._compare(job)
        training = self._train()
        brief = self._write_brief()
        pictures = tuple(self._picture_all())
        seconds = time.time() - started
        return Tour(
            VERSION,
            started,
            seconds,
            str(before.source),
            before.devices,
            job,
            live,
            training,
            brief,
            pictures,
        )

    def _connect(self) -> Snapshot:
        """Wait until the daemon has read every device."""
        self._print.step("Start the daemon and open the window offscreen")
        self._until(lambda: self._state.link.connected, phrase("the daemon"), START_S)
        return self._until(
            self._complete_snapshot, phrase("the first reading of every device"), START_S
        )

    def _complete_snapshot(self) -> Snapshot | None:
        snapshot = self._state.snapshot
        if snapshot is None or not snapshot.devices:
            return None
        return snapshot if all(state.reading for state in snapshot.devices) else None

    def _watch(self, devices: tuple[DeviceState, ...]) -> None:
        if all(state.device.kind == "replay" for state in devices):
            raise UserError(
                phrase(
                    "a REPLAY shows recorded devices and cannot run jobs. To take "
                    "pictures of it: gpudeck tour --pictures; for the whole tour, "
                    "first run: gpudeck daemon start --source auto"
                )
            )
        for state in devices:
            note = f" ({state.device.note})" if state.device.note else ""
            self._print.detail(f"watching {state.device.name}{note}")
        self._session.spin(WATCH_S)

    def _run_attention(self) -> Job:
        """Fill in the form and press Run; picture the dashboard while the job is timed."""
        job = self._press_run("attention", "Queue an attention job from the form")
        self._window.show_page("dashboard")
        return self._wait(job)

    def _train(self) -> Job:
        """Train a small model on the manual, and picture its losses."""
        job = self._wait(self._press_run("train", "Train a small model on the manual", TRAINING))
        with Client() as client:
            job = client.job(job.id)  # with all its curves
        if losses := losses_of(job):
            self._print.detail(f"the loss fell from {losses[0]:.3f} to {losses[-1]:.3f}")
        self._session.spin(PAGE_S)
        file = self._out / f"{TRAINED}.png"
        self._session.picture(file)
        self._pictures.append(file)
        return job

    def _press_run(self, workload: str, step: str, values: Mapping[str, str] | None = None) -> int:
        """Fill in the form of a workload and press Run; return the number of the queued job."""
        page = self._window.workloads
        self._window.show_page("workloads")
        page.choose(workload)
        page.form.fill(values or {})
        self._print.step(f"{step}: {page.estimate.text()}")
        known = {job.id for job in self._jobs()}
        page.run.click()
        return self._until(
            lambda: next((job.id for job in self._jobs() if job.id not in known), None),
            phrase("the queued job"),
            START_S,
        )

    def _wait(self, number: int) -> Job:
        """Wait for the end of a job."""
        job = self._until(
            lambda: self._ended(number), phrase("the end of job {job}", job=number), JOB_S
        )
        clear_progress()
        self._print.detail(f"job {number}: {describe(job)}")
        return job

    def _ended(self, number: int) -> Job | None:
        """Return the job if it has ended; picture the dashboard once it is well under way."""
        job = next(job for job in self._jobs() if job.id == number)
        self._print.progress(f"job {number}: {describe(job)}")
        if not self._pictures and _timed_share(job) > PICTURE_AT:
            file = self._out / f"{DURING}.png"
            self._session.picture(file)
            self._pictures.append(file)
        return None if job.active else job

    def _compare(self, job: Job) -> Live:
        live = compare(job)
        if live.shown_tflops is not None:
            text = f"live {live.shown_tflops:.4g} TFLOP/s, counted by the job "
            text += f"{live.counted_tflops:.4g}"
            if live.counters_tflops is not None:
                text += f", hardware counters {live.counters_tflops:.1f} (ratio {live.ratio:.3f})"
            self._print.detail(text)
        return live

    def _write_brief(self) -> Brief:
        """Press "Write a brief"; a model on a GPU waits until that is idle."""
        self._print.step("Ask the assistant for a brief")
        self._window.show_page("assistant")
        page = self._window.assistant.view
        conversation = page.conversation
        page.write_brief()
        started = time.monotonic()

        def answered() -> bool:
            if conversation.busy and (note := conversation.messages[-1].note):
                waited = time.monotonic() - started
                self._print.progress(f"{waited:.0f} of {BRIEF_S:.0f} s: {note}")
            return not conversation.busy

        written = self._session.until(answered, BRIEF_S)
        clear_progress()
        if not written:
            self._print.detail(f"not there after {BRIEF_S:.0f} s: the brief is written on the CPU")
            page.composer.stop.click()
            self._session.show_brief(Assistant().report(device="cpu"))
        message = conversation.messages[-1]
        if message.state != "done":
            raise UserError(phrase("the assistant wrote no brief: {note}", note=message.note))
        self._print.detail(f"brief written by: {message.writer}")
        for ending in (".html", ".pdf"):
            save_report(unpacked(message.report), self._out / f"report{ending}")
        return Brief(message.text, message.writer)

    def _picture_all(self) -> list[str]:
        self._print.step("Take pictures of every page, light and dark, at two sizes")
        self._pictures += self._session.pictures(self._out)
        return [file.name for file in self._pictures]

    def _jobs(self) -> tuple[Job, ...]:
        return self._state.snapshot.jobs if self._state.snapshot else ()

    def _until(self, find: Callable[[], T | None], what: Text, seconds: float) -> T:
        """Return the first true value of `find`.

        Raises:
            UserError: There was none within `seconds`; the message says what the window shows.
        """
        found: list[T] = []

        def poll() -> bool:
            if value := find():
                found.append(value)
            return bool(found)

        if not self._session.until(poll, seconds):
            notices = self._state.snapshot.notices if self._state.snapshot else ()
            why = [*notices] if self._state.link.connected else [self._state.link.text]
            raise UserError(
                phrase(
                    "timed out after {span} waiting for {what}. See: gpudeck doctor",
                    span=Span(round(seconds)),
                    what=phrase("{what} ({why})", what=what, why=join_texts(why)) if why else what,
                )
            )
        return found[0]


def _timed_share(job: Job) -> float:
    progress = job.state.progress if isinstance(job.state, Running) else None
    if progress is None or progress.note != "timing":
        return 0.0
    return progress.done / progress.total
