"""The main job from end to end without a display: watch, run attention, read the brief, picture every page of the real window."""

from __future__ import annotations

import os
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from app import __version__
from app.cli.care import daemon_status
from app.cli.output import say, say_json, status_line
from app.format.job_line import describe
from app.report.file import save_report
from app.shell.main import begin
from app.workloads.results import result_of
from assistant.client import Assistant
from assistant.reports.report import unpacked
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.jobs import Done, Job, Running
from scheduler.protocol.snapshot import DeviceState, Snapshot

if TYPE_CHECKING:
    from app.tour.session import Session

WATCH_S = 3.0
"""How long the devices are watched before the job, so that the charts show what was there before."""
PAGE_S = 0.5
"""How long a page is shown before it is pictured, so that what it asks for is there."""
JOB_S = 3600.0
IDLE_S = 90.0
"""A device that is not idle for this long is somebody else's: the brief is then written without waiting for it."""
TELL_S = 10.0
"""So often a log is told what is waited for."""

DURING = "dashboard-during-the-job"

T = TypeVar("T")


class Live(msgspec.Struct, frozen=True):
    """What the dashboard showed while the job's timed loop ran, beside what the job counted."""

    shown_tflops: float | None
    """Mean of the dashboard's curve; None where it showed none."""
    method: str
    counted_tflops: float
    ratio: float | None
    counters_tflops: float | None
    """Mean by the hardware counters; None where the device has none."""
    readings: int


class Brief(msgspec.Struct, frozen=True):
    text: str
    """Markdown."""
    writer: str
    """`template` or `model NAME`."""
    waited_for_idle: bool


class Tour(msgspec.Struct, frozen=True):
    """results.json of a tour."""

    version: str
    started: float
    seconds: float
    source: str
    devices: tuple[DeviceState, ...]
    """Before the job."""
    job: Job
    live: Live
    brief: Brief
    pictures: tuple[str, ...]


def tour(args: Namespace) -> int:
    """Run it, print where the results are. Exit status 1 where the attention job failed."""
    out = Path(args.out).absolute()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UserError(
            f"cannot write to {out}: {e.strerror}. Choose another folder with --out."
        ) from e
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    was_running = daemon_status().running
    try:
        begin()
        from app.tour.session import Session  # not before it is known that Qt can be loaded

        with Session() as session:
            guide = _Guide(session, out, quiet=args.json)
            done = guide.look() if args.pictures else guide.run()
        if isinstance(done, Tour):
            _write(out, done)
    except OSError as e:
        raise UserError(
            f"cannot write to {out}: {e.strerror}. Free some space, or choose another folder with --out."
        ) from e
    finally:
        if not was_running:
            _leave_no_daemon()
    if args.json:
        say_json(done)
    elif not isinstance(done, Tour):
        say(f"pictures: {len(done)} in {out}")
        return 0
    else:
        say(f"pictures: {len(done.pictures)} in {out}")
        say(f"report:   {out / 'report.md'}, with charts in report.html and report.pdf")
        say(f"results:  {out / 'results.json'}")
    return 0 if not isinstance(done, Tour) or isinstance(done.job.state, Done) else 1


def _leave_no_daemon() -> None:
    """End the daemon that the tour started, unless somebody has given it work meanwhile."""
    try:
        with Client(start=False) as deck:
            if not deck.jobs(active=True):
                deck.stop_daemon()
    except DaemonGone:
        pass  # it never came up


class _Guide:
    """Leads through the tour, step by step, with the window's event loop running."""

    def __init__(self, session: Session, out: Path, quiet: bool) -> None:
        self._session, self._out, self._quiet = session, out, quiet
        self._window = session.window
        self._state = session.window.state
        self._pictures: list[Path] = []
        self._step = 0
        self._told = 0.0

    def look(self) -> list[str]:
        """Only picture every page, as it is now."""
        from app.shell.window import PAGES

        self._open()
        for page in PAGES:
            self._window.show_page(page)
            self._session.spin(PAGE_S)
        return self._picture_all()

    def run(self) -> Tour:
        started = time.time()
        before = self._open()
        if all(state.device.kind == "replay" for state in before.devices):
            raise UserError(
                "a REPLAY shows the past and runs no jobs. Pictures of it: gpudeck tour --pictures; "
                "for a whole tour: gpudeck daemon start --source auto"
            )
        for state in before.devices:
            self._say(
                f"watch {state.device.name}{f' ({state.device.note})' if state.device.note else ''}",
                count=False,
            )
        self._session.spin(WATCH_S)
        job = self._run_attention()
        live = self._compare(job)
        brief = self._brief()
        names = tuple(self._picture_all())
        return Tour(
            __version__,
            started,
            time.time() - started,
            before.source,
            before.devices,
            job,
            live,
            brief,
            names,
        )

    def _open(self) -> Snapshot:
        """Connect, and wait until every device has been read."""
        self._say("start the daemon and open the window offscreen")
        self._until(lambda: self._state.link.connected, "the daemon", 30)
        self._until(self._all_read, "the first reading of every device", 30)
        assert self._state.snapshot is not None
        return self._state.snapshot

    def _picture_all(self) -> list[str]:
        self._say("picture every page, light and dark, at two sizes")
        self._pictures += self._session.pictures(self._out)
        return [p.name for p in self._pictures]

    def _run_attention(self) -> Job:
        """Fill in the form and press Run, as a person would; picture the dashboard while the job is being timed."""
        page = self._window.workloads
        self._window.show_page("workloads")
        page.choose("attention")
        self._say(f"queue an attention job from the form: {page.estimate.text()}")
        known = {j.id for j in self._jobs()}
        page.run.click()
        job = self._until(
            lambda: next((j for j in self._jobs() if j.id not in known), None), "the queued job", 30
        )
        self._window.show_page("dashboard")
        pictured = False

        def ended() -> Job | None:
            nonlocal pictured
            now = next(j for j in self._jobs() if j.id == job.id)
            self._wait_for(f"job {now.id}: {describe(now)}")
            if not pictured and _half_timed(now):
                self._picture(DURING)
                pictured = True
            return None if now.active else now

        job = self._until(ended, f"job {job.id}", JOB_S)
        status_line("")
        self._say(f"job {job.id}: {describe(job)}", count=False)
        return job

    def _compare(self, job: Job) -> Live:
        result = result_of(job)
        device = next(iter(job.state.devices), "") if isinstance(job.state, Done) else ""
        if result is None or not device or not result.sustained_tflops:
            return Live(None, "the job left no result", 0.0, None, None, 0)
        # a reading covers the interval before it, and a counted rate the two seconds before it
        since, until = result.sustained_from + 2.5, result.sustained_to
        with Client() as deck:
            past = deck.history(device, ("tflops", "tflops_gpm"), since, until)
        shown, counters = (_mean(past.columns[field]) for field in ("tflops", "tflops_gpm"))
        counted = result.sustained_tflops
        ratio = None if shown is None else shown / counted
        method = (
            "its own count of FLOPs over the last 2 s"
            if shown is not None
            else "no reading while it was timed"
        )
        if ratio is not None:
            hardware = f", hardware counters {counters:.1f}" if counters is not None else ""
            self._say(
                f"live TFLOP/s {shown:.4g}, counted by the job {counted:.4g} (ratio {ratio:.3f}){hardware}",
                count=False,
            )
        return Live(shown, method, counted, ratio, counters, len(past.times))

    def _brief(self) -> Brief:
        """Press "Write a brief", which waits until the devices are idle."""
        self._say(
            f"ask the assistant for the brief, once the devices are idle; after {IDLE_S:.0f} s without waiting any longer"
        )
        self._window.show_page("assistant")
        page, conversation = self._window.assistant.talk, self._state.conversation
        page.write_brief()
        asked = time.monotonic()

        def answered() -> bool:
            if conversation.busy and (note := conversation.messages[-1].note):
                self._wait_for(f"{time.monotonic() - asked:.0f} of {IDLE_S:.0f} s: {note}")
            return not conversation.busy

        waited = self._session.until(answered, IDLE_S)
        status_line("")
        if not waited:
            self._say(f"not idle within {IDLE_S:.0f} s: the brief is written now", count=False)
            page.entry.stop.click()
            self._session.show_brief(Assistant().report(when="now"))
        said = conversation.messages[-1]
        if said.state != "done":
            raise UserError(f"the assistant wrote no brief: {said.note}")
        self._say(f"brief written by: {said.writer}", count=False)
        for ending in (".html", ".pdf"):
            save_report(unpacked(said.report), self._out / f"report{ending}")
        return Brief(said.text, said.writer, waited)

    def _all_read(self) -> bool:
        found = self._state.snapshot
        return (
            found is not None
            and bool(found.devices)
            and all(s.reading is not None for s in found.devices)
        )

    def _jobs(self) -> tuple[Job, ...]:
        return self._state.snapshot.jobs if self._state.snapshot else ()

    def _picture(self, name: str) -> None:
        file = self._out / f"{name}.png"
        self._session.picture(file)
        self._pictures.append(file)

    def _until(self, found: Callable[[], T | None], what: str, seconds: float) -> T:
        """What `found` returns once it is true. Raises UserError where that takes longer, with what the window says about it."""
        got: list[T] = []

        def look() -> bool:
            if value := found():
                got.append(value)
            return bool(got)

        if not self._session.until(look, seconds):
            notices = self._state.snapshot.notices if self._state.snapshot else ()
            said = "; ".join(notices) if self._state.link.connected else self._state.link.text
            raise UserError(
                f"{what} did not come within {seconds:.0f} s{f' ({said})' if said else ''}. See: gpudeck doctor"
            )
        return got[0]

    def _wait_for(self, text: str) -> None:
        """What is waited for, and how far it is: on a terminal always, in a log now and then."""
        if self._quiet:
            return
        status_line(f"    {text}")
        if not sys.stderr.isatty() and time.monotonic() - self._told >= TELL_S:
            self._told = time.monotonic()
            self._say(text, count=False)

    def _say(self, text: str, count: bool = True) -> None:
        if self._quiet:
            return
        if count:
            self._step += 1
        say(f"{self._step}. {text}" if count else f"   {text}")


def _half_timed(job: Job) -> bool:
    progress = job.state.progress if isinstance(job.state, Running) else None
    return (
        progress is not None and progress.note == "timing" and progress.done > 0.7 * progress.total
    )


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.mean(known) if known else None


def _write(out: Path, done: Tour) -> None:
    """report.md and results.json."""
    result = result_of(done.job)
    lines = [done.brief.text, "", "## The tour", ""]
    lines.append(
        f"Job {done.job.id} is {done.job.status}."
        + (f" Verdict: {result.verdict}." if result else "")
    )
    if done.live.shown_tflops is not None:
        lines.append(
            f"While it was timed, the dashboard showed {done.live.shown_tflops:.4g} TFLOP/s on average ({done.live.method}); "
            f"the job counted {done.live.counted_tflops:.4g}."
        )
    if done.live.counters_tflops is not None:
        lines.append(f"The card's own counters said {done.live.counters_tflops:.4g} TFLOP/s.")
    if f"{DURING}.png" in done.pictures:
        lines += ["", f"![The dashboard during the job]({DURING}.png)"]
    lines += ["", f"Written by: {done.brief.writer}", ""]
    (out / "report.md").write_text("\n".join(lines))
    (out / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
