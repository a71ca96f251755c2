"""How each process used its device is kept as long as what the device itself did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.protocol.devices import Process, Reading
from gpudeck.scheduler.protocol.past_processes import PROCESS_FIELDS, PastProcess, use_of
from gpudeck.scheduler.store.archive import Archive
from gpudeck.scheduler.store.keeper import HistoryKeeper
from gpudeck.scheduler.telemetry.history_table import DAY, HOUR
from gpudeck.scheduler.telemetry.process_uses import STEP_S, ProcessUses

NOW = 1_790_000_000.0
GIB = 2.0**30
TRAIN = Process(4711, "python", "ada", 8 * GIB, 3, ticks=900, sm=50.0)
DRAW = Process(812, "blender", "ben", None, ticks=12)
KEY = use_of("GPU-0", TRAIN).key


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder / "history.sqlite"


@pytest.fixture
def keeper(file: Path) -> Iterator[HistoryKeeper]:
    made = HistoryKeeper(file, pytest.fail)
    yield made
    made.close()


class Machine:
    """Feed what a GPU and its processes do to a history, as the daemon does."""

    def __init__(self, keeper: HistoryKeeper) -> None:
        self.keeper, self.uses = keeper, ProcessUses()

    def run(self, since: float, seconds: float, *processes: Process, step: float = STEP_S) -> None:
        for at in range(int(seconds / step) + 1):
            reading = Reading("GPU-0", since + at * step, {"util": 1.0}, processes=processes)
            own = max(step, STEP_S)
            found = [(reading, step), *((one, own) for one in self.uses.add(reading))]
            self.keeper.add(found)
            for process in list(self.uses.ended):
                self.keeper.finish(process)
                self.uses.ended.discard(process)
            for ready in self.keeper.mergeable():
                self.keeper.merge(ready)
        self.keeper.journal()


def only(keeper: HistoryKeeper, since: float = 0.0, until: float = 1e18) -> PastProcess:
    (found,) = keeper.processes(since, until)
    return found


def test_a_process_is_listed_with_its_memory_and_its_load(keeper: HistoryKeeper) -> None:
    machine = Machine(keeper)
    machine.run(NOW, 60.0, TRAIN, DRAW)
    machine.run(NOW + 62, 60.0, Process(4711, "python", "ada", 2 * GIB, 3, ticks=900, sm=100.0))
    found = only(keeper)
    assert found.use == use_of("GPU-0", TRAIN), "of the other one the driver reports nothing"
    assert (found.memory, found.load) == (8 * GIB, 75.0), "the most memory, and the mean load"
    assert (found.first, found.last) == (NOW, NOW + 122)
    later = only(keeper, NOW + 80)
    assert (later.memory, later.load, later.first) == (2 * GIB, 100.0, NOW + 80)
    assert keeper.processes(NOW + 130, 1e18) == []
    curve = keeper.past(KEY, PROCESS_FIELDS, NOW, NOW + 122, 2)
    assert curve.columns["mem_used"] == pytest.approx([8 * GIB, 2 * GIB])


def test_a_process_is_read_no_more_often_than_needed(keeper: HistoryKeeper) -> None:
    Machine(keeper).run(NOW, 60.0, TRAIN, step=0.1)
    assert len(keeper.past(KEY, PROCESS_FIELDS, 0.0, 1e18, None).times) <= 60 / STEP_S + 1


def test_a_process_that_ended_is_known_after_a_restart_and_until_its_month_is_over(
    keeper: HistoryKeeper, file: Path
) -> None:
    machine = Machine(keeper)
    machine.run(NOW, 2 * HOUR, TRAIN)
    machine.run(NOW + 2 * HOUR + STEP_S, 60.0)
    keeper.close()
    again = HistoryKeeper(file, pytest.fail)
    assert only(again).last == pytest.approx(NOW + 2 * HOUR, abs=600)
    for days in (2, 8, 29):
        again.prune(NOW + days * DAY)
        found = only(again)
        assert (found.memory, found.load) == (8 * GIB, 50.0), f"after {days} days"
    for _ in range(20):  # some blocks at a time
        again.finish("nobody")
        again.prune(NOW + 31 * DAY)
    assert again.processes(0.0, 1e18) == []
    archive = again.archive
    assert archive is not None and KEY not in archive.newest()
    again.close()


def test_processes_that_ended_while_nothing_was_read_do_not_stay_for_ever(
    keeper: HistoryKeeper, file: Path
) -> None:
    Machine(keeper).run(NOW, HOUR, TRAIN)
    keeper.close()
    again = HistoryKeeper(file, pytest.fail)
    again.prune(NOW)
    assert KEY not in Archive(file).unfinished()
    Machine(again).run(NOW + 2 * HOUR, 60.0, TRAIN)
    found = only(again)
    assert found.last == pytest.approx(NOW + 2 * HOUR + 60), "it goes on where it still runs"
    again.close()


def test_thousands_of_short_processes_expire_as_fast_as_they_come(keeper: HistoryKeeper) -> None:
    machine = Machine(keeper)
    for at in range(400):
        process = Process(1000 + at, "python", "ada", GIB, ticks=at, sm=1.0)
        machine.run(NOW + 10 * at, 4.0, process)
    machine.run(NOW + 4000, 4.0)
    archive = keeper.archive
    assert archive is not None
    before = len(archive.newest())
    keeper.prune(NOW + 32 * DAY)
    assert before > 400 and len(archive.newest()) <= 5
