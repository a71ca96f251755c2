"""The window suspends and resumes jobs, and frees a GPU after saying what will happen."""

from __future__ import annotations

import msgspec
from PySide6.QtWidgets import QApplication

from gpudeck.app.format.free_devices import free_devices
from gpudeck.app.format.freeing import (
    free_question,
    gpus_to_free,
    jobs_on_gpus,
    suspended_jobs,
)
from gpudeck.app.shell.tray import Tray
from gpudeck.app.widgets.actions import find_action
from gpudeck.scheduler.protocol.bookings import Freed
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension, Running
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.bookings import Booked, Reserve
from gpudeck.scheduler.verbs.suspension import ResumeJob, SuspendJob
from tests.gui import snapshots
from tests.gui.conftest import Fed
from tests.gui.snapshots import NOW

FIRST = snapshots.gpu(0).id
OFF = JobSuspension("suspended", NOW - 60, memory=12 * 2**30)


def with_suspension(suspension: JobSuspension | None) -> Snapshot:
    """Return a snapshot whose running job is suspended in this way."""
    made = snapshots.gpu_snapshot(1)

    def change(job: Job) -> Job:
        if not isinstance(job.state, Running):
            return job
        state = msgspec.structs.replace(job.state, suspension=suspension)
        return msgspec.structs.replace(job, state=state)

    return msgspec.structs.replace(made, jobs=tuple(map(change, made.jobs)))


def toggle(fed: Fed) -> None:
    action = find_action(fed.window.jobs, "job.suspend")
    assert action is not None
    action.trigger()


def test_a_job_is_suspended_and_resumed_by_one_action(fed: Fed) -> None:
    fed.window.show_page("jobs")
    fed.feed(with_suspension(None))
    fed.window.jobs.show_job(8)
    fed.window.jobs.refresh()
    toggle(fed)
    assert [request for request in fed.asked if isinstance(request, SuspendJob)] == [SuspendJob(8)]
    off = with_suspension(OFF)
    fed.feed(off)
    details = fed.window.jobs.details
    assert details.state.text() == "Suspended"
    assert details.doing.text().startswith("12 GiB in host memory since")
    toggle(fed)
    assert fed.asked[-1] == ResumeJob(8)
    fed.feed(with_suspension(msgspec.structs.replace(OFF, phase="resuming")))
    assert details.state.text() == "Resuming"


def test_a_gpu_is_freed_after_the_window_says_what_will_happen(fed: Fed) -> None:
    fed.feed(snapshots.gpu_snapshot(1))
    fed.window.show_device(FIRST)
    page = fed.window.device
    page.free.click()
    assert page.asking.isVisible() and not [r for r in fed.asked if isinstance(r, Reserve)]
    text = page.asking.text.text()
    assert "GPU 0 is kept free until" in text
    assert "Job 8 (attention) is suspended" in text and "comes back by itself" in text
    page.asking.no.click()
    assert not page.asking.isVisible() and not [r for r in fed.asked if isinstance(r, Reserve)]
    page.free.click()
    page.asking.yes.click()
    (request,) = [r for r in fed.asked if isinstance(r, Reserve)]
    assert request.booking.gpus == (FIRST,) and request.booking.frees
    fed.reply(Reserve, Booked(3, freed=Freed(left=(8,))))
    toast = fed.window.toasts
    assert toast.isVisible()
    fed.window.show_device(FIRST)
    assert not page.asking.isVisible()


def test_the_palette_frees_a_gpu_after_the_same_question(fed: Fed) -> None:
    fed.feed(snapshots.gpu_snapshot(2))
    offers = [entry for entry in fed.window.commands._entries("game") if "two hours" in entry.title]
    assert [offer.title for offer in offers] == [
        "Free GPU 0 for two hours",
        "Free GPU 1 for two hours",
    ]
    offers[0].run()
    page = fed.window.device
    assert page.asking.isVisible() and "GPU 0 is kept free until" in page.asking.text.text()
    assert not [request for request in fed.asked if isinstance(request, Reserve)]


def test_a_recording_and_a_cpu_are_not_freed(fed: Fed) -> None:
    fed.feed(snapshots.gpu_snapshot(1, replay=True))
    fed.window.show_device(snapshots.gpu_snapshot(1, replay=True).devices[0].device.id)
    assert not fed.window.device.free.isVisible()


def test_the_tray_offers_what_can_be_done(qapp: QApplication) -> None:
    tray, asked = Tray(), list[str]()
    tray.freed.connect(lambda: asked.append("free"))
    tray.suspended.connect(lambda: asked.append("suspend"))
    tray.resumed.connect(lambda: asked.append("resume"))
    by_itself = with_suspension(msgspec.structs.replace(OFF, resume_at=NOW))
    wanted = (
        (with_suspension(None), [8], []),
        (with_suspension(OFF), [], [8]),
        (by_itself, [], []),
    )
    for shown, on, off in wanted:
        assert [job.id for job in jobs_on_gpus(shown)] == on
        assert [job.id for job in suspended_jobs(shown)] == off
        assert [gpu.id for gpu in gpus_to_free(shown)] == [FIRST]
        tray.show_jobs(True, bool(on), bool(off))
        tray.suspend.trigger()
        tray.resume.trigger()
    assert asked == ["suspend", "resume"]
    tray.free.trigger()
    tray.show_jobs(False, False, False)
    tray.free.trigger()
    assert asked[2:] == ["free"]


def test_the_first_line_says_how_much_host_memory_suspended_jobs_hold() -> None:
    assert "suspended jobs hold 12 GiB" in free_devices(with_suspension(OFF)).text
    assert "suspended" not in free_devices(with_suspension(None)).text


def test_only_the_jobs_of_a_gpu_leave_it_when_it_is_freed() -> None:
    made = snapshots.gpu_snapshot(2)
    first, second = (free_question(state, made) for state in made.devices)
    assert "Job 8 (" in first and first.count("Job ") == 1
    assert "Job " not in second
