"""A job's charts: its devices during its time, and its own share where the driver tells it of
each process."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gpudeck.app.jobs.job_charts import OWN
from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol.devices import Process
from gpudeck.scheduler.protocol.jobs import Done
from tests.gui import snapshots
from tests.gui.snapshots import GIB, NOW

GPU = snapshots.gpu(0).id


def shared(
    at: float, memory: float | None = 10 * GIB, sm: float | None = 30.0
) -> snapshots.Snapshot:
    """GPU 0 is held by jobs 7 and 8, and somebody else is on it, too; job 8 has run for a
    minute."""
    made = snapshots.gpu_snapshot(2, at)
    first, second = made.devices
    own = [
        Process(pid, "python", memory=memory, job=job, sm=sm)
        for pid, job in ((1, 8), (2, 8), (3, 7), (4, None))
    ]
    reading = msgspec.structs.replace(first.reading, processes=tuple(own))
    jobs = tuple(
        msgspec.structs.replace(j, state=msgspec.structs.replace(j.state, at=NOW - 60))
        if j.id == 8
        else j
        for j in made.jobs
    )
    first = msgspec.structs.replace(first, reading=reading, holders=(7, 8))
    return msgspec.structs.replace(made, devices=(first, second), jobs=jobs)


@pytest.fixture
def page(fed):
    fed.window.show_page("jobs")
    fed.feed(shared(NOW - 30), history=True)
    for second in range(29, -1, -1):
        fed.window.state.update(shared(NOW - second))
    fed.feed(shared(NOW))
    fed.window.jobs.choose(8)
    fed.settle()
    return fed.window.jobs


def curves(page, field: str) -> dict[str, object]:
    return page.details.charts.cards[field].view.curves.paths


def values(page, field: str) -> str:
    return page.details.charts.cards[field].values.text


def test_a_running_job_has_its_devices_and_its_own_share(fed, page):
    assert page.details.charts.isVisible()
    for field, own in (("util", "own 60"), ("mem_used", "own 20.0")):
        assert list(curves(page, field)) == [GPU, GPU + OWN]
        assert own in values(page, field)
    start, end = page.details.charts.cards["util"].view.box.viewRange()[0]
    assert (start, end) == (NOW - 60, NOW), "its own time, not ten minutes"
    times, told = fed.window.state.job_usage.window(8, GPU, NOW - 60, NOW)
    assert (len(times), told[:, -1].tolist()) == (31, [60.0, 20 * GIB])
    assert fed.window.state.job_usage.window(8, GPU, NOW - 10, NOW - 5)[0].tolist() == list(
        np.arange(NOW - 10, NOW - 4)
    )


def test_a_device_without_process_data_is_listed_alone(fed):
    fed.window.show_page("jobs")
    fed.feed(shared(NOW, None, None), history=True)
    fed.window.jobs.choose(8)
    assert list(curves(fed.window.jobs, "mem_used")) == [GPU]
    assert "own" not in values(fed.window.jobs, "mem_used")


def test_a_job_on_one_gpu_has_the_first_colour_whichever_gpu_it_is(fed, page):
    second = snapshots.gpu(1).id
    made = shared(NOW + 60)
    moved = msgspec.structs.replace(made.jobs[1], state=Done(NOW - 60, NOW, (second,)))
    fed.feed(msgspec.structs.replace(made, jobs=(made.jobs[0], moved, *made.jobs[2:])))
    card = page.details.charts.cards["util"]
    assert list(card.view.curves.paths) == [second]
    assert card.view.curves.paths[second][0].color().name() == theme.tokens().series[0]


def test_an_ended_job_keeps_the_curves_of_its_time_and_no_value_of_now(fed, page):
    made = shared(NOW + 60)
    over = msgspec.structs.replace(made.jobs[1], state=Done(NOW - 60, NOW, (GPU,)))
    fed.feed(msgspec.structs.replace(made, jobs=(made.jobs[0], over, *made.jobs[2:])))
    assert list(curves(page, "util")) == [GPU, GPU + OWN]
    assert values(page, "util").strip() in ("", "%")
    assert page.details.charts.cards["util"].view.box.viewRange()[0] == [NOW - 60, NOW]
    fed.feed(msgspec.structs.replace(made, jobs=made.jobs[2:], time=NOW + 61))
    assert fed.window.state.job_usage.window(8, GPU, NOW - 60, NOW) is None, (
        "forgotten with the job"
    )


def test_jobs_without_history_have_no_charts(fed, page):
    for number in (9, 3):
        page.choose(number)
        assert page.details.charts.isHidden() == (number == 9)
    old = snapshots.job(4, Done(NOW - 9000, NOW - 8000, (GPU,)))
    none = snapshots.job(5, Done(NOW - 60, NOW, ()))
    fed.feed(msgspec.structs.replace(shared(NOW + 1), jobs=(none, old)))
    for number in (5, 4):
        page.choose(number)
        assert page.details.charts.isHidden()


def test_the_chosen_job_is_beside_the_table_of_a_wide_window(fed):
    fed.window.show_page("jobs")
    page = fed.window.jobs
    for width, beside in ((2560, True), (1280, True), (1100, False)):
        fed.window.resize(width, 1000)
        fed.feed(snapshots.gpu_snapshot(1, NOW + width), history=True)
        page.choose(8)
        fed.settle()
        table, details = (w.mapTo(page, w.rect().topLeft()) for w in (page.table, page.details))
        assert (details.x() > table.x() + page.table.width()) is beside
        facts, log = (
            w.mapTo(page, w.rect().topLeft()) for w in (page.details.facts, page.details.log)
        )
        assert (log.y() > facts.y() + page.details.facts.height()) is beside
