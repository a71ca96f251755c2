"""What is told of GPUs that are free, held or kept, now and at a time that is asked for."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gpudeck.assistant.answers import answer
from gpudeck.assistant.query.capacity import capacity
from gpudeck.assistant.query.request import Query, Span
from gpudeck.language.languages import LANGUAGES, Language
from gpudeck.language.words import words
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, JobWaits, OtherProcesses
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import Forecast, Job, Progress, Queued, Running, Spec
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot

NOW = datetime(2026, 11, 26, 15, 20).timestamp()
HOUR = 3600.0
BOOKING = Booking(("GPU-2",), NOW + 18 * HOUR, NOW + 22 * HOUR, None, "sweep")


def deck(done: int = 50, memory: int = 0) -> tuple[Any, Snapshot]:
    """Return a daemon and its state: job 10 has two GPUs for an hour more, others have one."""
    progress = Progress(done, 100, NOW) if done else None
    state = Running("n", ("GPU-0", "GPU-1"), NOW - HOUR, 1, 1, "b", progress=progress)
    runs = Job(10, Spec(("x",), "train", "/", gpus=2, memory=memory), NOW - HOUR, state)
    waits = Job(11, Spec(("x",), "next", "/", gpus=4), NOW - HOUR, Queued())
    held, idle = Busy(HeldByJobs((10,))), Busy(JobWaits(11))
    uses = [(held, (10,)), (held, (10,)), (idle, ()), (Busy(OtherProcesses(1)), ())]
    devices = tuple(
        DeviceState(Device(f"GPU-{n}", n, "H100", "nvidia"),
                    Reading(f"GPU-{n}", NOW, {"mem_free": 79e9}), use, holders)
        for n, (use, holders) in enumerate(uses)
    )  # fmt: skip
    settings = msgspec.structs.replace(Settings(), reservations={"1": BOOKING})
    daemon = SimpleNamespace(
        jobs=lambda *_, **__: (runs, waits),
        find=lambda *_, **__: ((), None),
        spec=lambda argv, options: Spec(tuple(argv), "x", "/", **options),
        foresee_spec=lambda *_: Forecast(("GPU-2",), None, None),
    )
    return daemon, Snapshot(1, NOW, devices, (runs, waits), settings, "nvml")


def told(query: Query, language: Language = "en", **more: Any) -> str:
    daemon, snapshot = deck(**more)
    return answer(query, capacity(daemon, query, snapshot), words(language))


def test_who_asks_for_a_gpu_is_told_which_are_free_and_until_when_the_others_are_held() -> None:
    said = told(Query("capacity", gpus=1))
    assert "Free now: GPU 2 (kept for group sweep, 27 November 2026, 09:20 to 13:20" in said
    assert (
        "Job 10 holds GPU 0 and GPU 1 and should end at 16:20 (from its progress so far)." in said
    )
    assert "In use: GPU 3 (1 process of others)." in said
    assert "1 job waits for GPUs and may take some of them first." in said
    assert "Free memory" not in said


def test_it_is_told_when_as_many_gpus_should_be_free_or_that_nobody_knows() -> None:
    assert "3 GPUs should be free at 16:20." in told(Query("capacity", gpus=3))
    assert "When 4 GPUs will be free at once is not known." in told(Query("capacity", gpus=4))
    unknown = told(Query("capacity", gpus=2), done=0)
    assert "Job 10 holds GPU 0 and GPU 1; when it ends is not known." in unknown
    assert "When 2 GPUs will be free at once is not known." in unknown


@pytest.mark.parametrize(
    ("since", "until", "gpus", "first"),
    [
        (2.0, 3.0, 3, "Yes: these GPUs should be free then (26 November 2026, 17:20 to 18:20"),
        (0.5, 0.6, 2, "No: only these GPUs are known to be free then"),
        (17.0, 19.0, 3, "No: only these GPUs are known to be free then"),
        (23.0, 23.0, 3, "Yes: these GPUs should be free then (on 27 November 2026 at 14:20"),
    ],
)
def test_a_time_to_come_counts_the_ends_of_jobs_and_the_bookings(
    since: float, until: float, gpus: int, first: str
) -> None:
    span = Span(NOW + since * HOUR, NOW + until * HOUR)
    said = told(Query("capacity", gpus=gpus, time=span))
    assert said.startswith(first)
    named = said.partition("\n")[0].partition("): ")[2]
    expected = {2.0: "GPU 0, GPU 1 and GPU 2.", 0.5: "GPU 2.", 17.0: "GPU 0 and GPU 1."}
    assert named == expected.get(since, expected[2.0])


def test_a_gpu_that_is_named_is_answered_for() -> None:
    morning = Span(NOW + 19 * HOUR, NOW + 19 * HOUR)
    kept = told(Query("capacity", devices=(2,), time=morning))
    assert kept.startswith("No: GPU 2 is not known to be free then (on 27 November 2026 at 10:20).")
    assert "Free now: GPU 2 (kept for group sweep, 27 November 2026, 09:20 to 13:20" in kept
    assert "GPU 0" not in kept and "GPU 3" not in kept
    free = told(Query("capacity", devices=(0, 1), time=morning))
    assert free.startswith("Yes: these GPUs should be free then")
    assert "GPU 0 and GPU 1 should all be free at 16:20." in told(Query("capacity", devices=(0, 1)))
    unknown = told(Query("capacity", devices=(0,)), done=0)
    assert "When GPU 0 will be free is not known." in unknown and "GPU 1" not in unknown
    with pytest.raises(NotFound, match="there is no GPU 9"):
        told(Query("capacity", devices=(9,)))


def test_no_memory_is_offered_of_gpus_that_a_job_has_as_a_whole() -> None:
    wanted = Query("capacity", gpus=1, amount=20e9)
    assert "By free memory it would fit on GPU 2 and GPU 3." in told(wanted)
    shared = told(wanted, memory=int(30e9))
    assert "GPU 0" in shared.partition("it would fit on")[2].partition(".")[0]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_the_same_gpus_and_times(language: Language) -> None:
    span = Span(NOW + 2 * HOUR, NOW + 3 * HOUR)
    said = told(Query("capacity", gpus=3, time=span), language)
    assert all(part in said for part in ("GPU 0", "GPU 2", "GPU 3", "16:20", "sweep", "17:20"))
    assert language == "en" or "free" not in said
