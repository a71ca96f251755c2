"""The history keeps every reading once, whatever happens to daemon, disk or clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpudeck.language.text import Text
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.store import keeper as module
from gpudeck.scheduler.store.archive import Archive
from gpudeck.scheduler.store.keeper import HistoryKeeper
from gpudeck.scheduler.telemetry.history_table import BLOCK_ROWS, DAY, HOUR, TIERS

NOW = 1_790_000_000.0
EVERY = 10.0


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


def feed(
    keeper: HistoryKeeper,
    times: np.ndarray,
    device: str = "GPU-0",
    every: float = EVERY,
    prune: bool = False,
) -> None:
    """Feed readings as the daemon does, and merge them when there are enough."""
    for start in range(0, len(times), 100):
        piece = times[start : start + 100]
        keeper.add(
            (Reading(device, float(t), {"util": value(t), "mem_used": 2e10}), every) for t in piece
        )
        keeper.journal()
        for ready in keeper.mergeable():
            keeper.merge(ready)
            if prune:
                keeper.prune(float(piece[-1]))


def value(time: float) -> float:
    """Return a value that differs from reading to reading."""
    return float(np.float32(50 + 40 * np.sin(time / 5000) + (time * 7919) % 10))


VALUE = np.vectorize(value)


def test_a_zoom_to_any_span_shows_the_lowest_mean_and_highest_of_all_readings_in_it(
    keeper: HistoryKeeper,
) -> None:
    times = NOW + EVERY * np.arange(26_000)  # three days
    feed(keeper, times)
    values = VALUE(times)
    for seconds, points in (
        (HOUR, 90),
        (HOUR, 10_000),
        (6 * HOUR, 500),
        (DAY, 300),
        (3 * DAY, 100),
        (3 * DAY, 1),
    ):
        until = float(times[-1]) - seconds / 3
        since = until - min(seconds, until - NOW)
        found = keeper.past("GPU-0", ["util"], since, until, points)
        assert 0 < len(found.times) <= points
        inside = values[(times >= since) & (times <= until)]
        step = max((t.step for t in TIERS if t.step <= seconds / points), default=EVERY)
        ragged = (
            1.0 + 2 * step / (until - since) * 100
        )  # rows at both ends may stand for readings outside
        assert min(found.low["util"]) == pytest.approx(inside.min(), abs=ragged)
        assert max(found.high["util"]) == pytest.approx(inside.max(), abs=ragged)
        assert np.mean(found.columns["util"]) == pytest.approx(inside.mean(), abs=ragged)
        assert all(
            low <= mean <= high
            for low, mean, high in zip(
                found.low["util"], found.columns["util"], found.high["util"], strict=True
            )
        )
        assert None not in found.columns["util"]


def test_the_mean_over_all_is_exact_through_all_tiers(keeper: HistoryKeeper) -> None:
    times = NOW + EVERY * np.arange(26_000)
    feed(keeper, times)
    found = keeper.past("GPU-0", ["util"], 0.0, 1e18, 1)
    assert found.columns["util"] == pytest.approx([VALUE(times).mean()], rel=1e-5)
    assert (found.low["util"], found.high["util"]) == ([VALUE(times).min()], [VALUE(times).max()])
    assert found.times == pytest.approx([times.mean()])


def test_raw_readings_come_back_as_they_were(keeper: HistoryKeeper) -> None:
    times = NOW + 0.5 * np.arange(1500)  # some in a block, some not
    feed(keeper, times, every=0.5)
    found = keeper.past("GPU-0", ["util", "no such field"], 0.0, 1e18, None)
    assert found.times == times.tolist()
    assert found.columns["util"] == found.low["util"] == found.high["util"] == VALUE(times).tolist()
    assert set(found.columns["no such field"]) == {None}
    assert keeper.past("GPU-0", ["util"], NOW + 10.25, NOW + 11.25, None).times == [
        NOW + 10.5,
        NOW + 11.0,
    ]
    assert keeper.past("GPU-9", ["util"], 0.0, 1e18, None).times == []
    assert keeper.fields("GPU-0", 0.0, 1e18) == ["mem_used", "util"]


@pytest.mark.parametrize(("gap", "points"), [(30.0, 500), (30.0, None), (2 * HOUR, 50), (DAY, 40)])
def test_a_gap_is_a_row_without_values(
    keeper: HistoryKeeper, gap: float, points: int | None
) -> None:
    before = NOW + np.arange(2000)
    after = before[-1] + gap + np.arange(2000)
    feed(keeper, before, every=1.0)
    feed(keeper, after, every=1.0)
    found = keeper.past("GPU-0", ["util"], 0.0, 1e18, points)
    holes = [t for t, v in zip(found.times, found.columns["util"], strict=True) if v is None]
    assert len(holes) == 1
    assert before[-1] - gap <= holes[0] <= after[0]
    assert points is None or len(found.times) <= points


def test_the_next_daemon_goes_on_where_a_killed_one_was(file: Path) -> None:
    first = HistoryKeeper(file, pytest.fail)
    feed(first, NOW + 0.5 * np.arange(1000), every=0.5)  # and it is gone
    second = HistoryKeeper(file, pytest.fail)
    feed(second, NOW + 1000 + 0.5 * np.arange(1000), every=0.5)
    found = second.past("GPU-0", ["util"], 0.0, 1e18, None)
    read = [t for t, v in zip(found.times, found.columns["util"], strict=True) if v is not None]
    assert read == [*(NOW + 0.5 * np.arange(1000)), *(NOW + 1000 + 0.5 * np.arange(1000))]
    assert found.columns["util"].count(None) == 1
    second.close()


FEEDER = """
import sys
from pathlib import Path
import numpy as np
from gpudeck.scheduler.store.keeper import HistoryKeeper
from tests.unit.scheduler.test_history import feed
keeper = HistoryKeeper(Path(sys.argv[1]), print)
start = float(sys.argv[2])
for i in range(1000):
    feed(keeper, start + i * 100 + np.arange(100.0), every=1.0)
    print(i, flush=True)
"""


def test_a_kill_at_any_moment_leaves_every_reading_once(file: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    for run in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", FEEDER, str(file), str(NOW + run * 1e6)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
        )
        assert child.stdout is not None
        acknowledged = [child.stdout.readline() for _ in range(8 + 3 * run)]
        time.sleep(0.01 * run)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        keeper = HistoryKeeper(file, pytest.fail)
        found = keeper.past("GPU-0", ["util"], NOW + run * 1e6 - 1, NOW + run * 1e6 + 5e5, None)
        keeper.close()
        read = [t for t, v in zip(found.times, found.columns["util"], strict=True) if v is not None]
        assert len(read) >= 100 * (int(acknowledged[-1]) + 1)
        assert read == [NOW + run * 1e6 + i for i in range(len(read))]


def test_a_full_disk_loses_nothing_that_still_fits_in_memory(keeper: HistoryKeeper) -> None:
    feed(keeper, NOW + 0.5 * np.arange(1000), every=0.5)
    db = keeper.archive.connection
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    keeper.add(
        (
            Reading(
                "GPU-0", NOW + 500 + i, {"util": 1.0, **{f"f{n}": float(i * n) for n in range(200)}}
            ),
            1.0,
        )
        for i in range(700)
    )
    with pytest.raises(UserError, match="disk is full") as caught:
        for _ in range(2):
            keeper.journal()
            keeper.merge("GPU-0")
    assert "\n" not in str(caught.value)
    assert len(keeper.past("GPU-0", ["util"], 0.0, 1e18, None).times) == 1700
    db.execute("PRAGMA max_page_count = 1073741823")
    keeper.journal()
    keeper.merge("GPU-0")
    found = keeper.past("GPU-0", ["f3"], NOW + 500, 1e18, None)
    assert found.columns["f3"] == [3.0 * i for i in range(700)]


def test_a_clock_that_is_set_back_or_far_ahead_costs_little_of_the_past(
    keeper: HistoryKeeper,
) -> None:
    times = NOW + EVERY * np.arange(9000)
    feed(keeper, times, prune=True)
    before = keeper.past("GPU-0", ["util"], NOW, float(times[-1]), 100)
    feed(
        keeper, times[-1] + 3e9 + np.arange(1300.0), every=1.0, prune=True
    )  # the year 2121, for 20 minutes
    feed(
        keeper, times[-1] - 1800 + np.arange(3000.0), every=1.0, prune=True
    )  # half an hour that was there before
    found = keeper.past("GPU-0", ["util"], NOW, float(times[-1]), 100)
    assert found.columns["util"][5:-3] == pytest.approx(
        before.columns["util"][5:-3], abs=3.0
    )  # the end was read twice
    feed(keeper, times[-1] + 1200 + EVERY * np.arange(9000), prune=True)
    assert keeper.past("GPU-0", ["util"], float(times[-1]) + DAY * 9, 1e18, 10).times == []


def test_the_tiers_bound_how_much_is_kept(keeper: HistoryKeeper) -> None:
    times = NOW + EVERY * np.arange(80_000)  # nine days
    feed(keeper, times, prune=True)
    newest = float(times[-1])
    for tier, (step, keep) in enumerate(TIERS):
        oldest = keeper.archive.oldest("GPU-0", tier)
        assert oldest is not None
        assert newest - oldest <= keep + 2 * EVERY * module.MERGE_ROWS + BLOCK_ROWS * step
        assert newest - oldest >= min(keep, newest - NOW) - 2 * step


def test_a_damaged_file_is_put_aside_also_while_it_is_in_use(file: Path) -> None:
    messages: list[str] = []
    keeper = HistoryKeeper(file, messages.append)
    feed(keeper, NOW + np.arange(1300.0), every=1.0)
    keeper.close()
    with file.open("r+b") as f:
        f.seek(4096)
        f.write(b"\xff" * (file.stat().st_size - 4096))
    keeper = HistoryKeeper(file, messages.append)
    feed(keeper, NOW + 2000 + np.arange(1300.0), every=1.0)
    assert [t for t in keeper.past("GPU-0", ["util"], 0.0, 1e18, None).times if t >= NOW + 2000][
        -1
    ] == NOW + 3299
    keeper.close()
    assert len(messages) == 1
    assert "starts anew" in messages[0]


def test_a_newer_history_is_left_alone_and_readings_wait_in_memory(file: Path) -> None:
    archive = Archive(file)
    archive.connection.execute("PRAGMA user_version = 99")
    archive.close()
    before = file.read_bytes()
    keeper = HistoryKeeper(file, pytest.fail)
    keeper.add([(Reading("GPU-0", NOW, {"util": 1.0}), 1.0)])
    with pytest.raises(UserError, match="newer GPU Deck"):
        keeper.journal()
    assert file.read_bytes() == before


def test_annotations_are_replaced_by_name_and_ended_by_the_next_daemon(file: Path) -> None:
    keeper = HistoryKeeper(file, pytest.fail)
    feed(keeper, NOW + np.arange(100.0), every=1.0)
    begun = Annotation(NOW, None, "alert", "hot", "GPU-0")
    ended = Annotation(NOW, NOW + 50, "alert", "hot for 50 s", "GPU-0")
    keeper.annotate(
        [
            begun,
            Annotation(NOW + 60, None, "throttle", Text("power limit"), "GPU-0"),
            Annotation(NOW + 70, NOW + 70, "xid", "79", "GPU-0"),
        ]
    )
    assert keeper.annotations(NOW, NOW + 10) == [begun]
    keeper.annotate([ended])
    assert keeper.annotations(NOW + 51, NOW + 55) == []
    keeper.close()
    keeper = HistoryKeeper(file, pytest.fail)
    assert keeper.annotations(0.0, 1e18) == [
        ended,
        Annotation(NOW + 60, NOW + 99, "throttle", Text("power limit"), "GPU-0"),
        Annotation(NOW + 70, NOW + 70, "xid", "79", "GPU-0"),
    ]
    keeper.close()


def test_an_annotation_that_was_stored_is_not_stored_again(keeper: HistoryKeeper) -> None:
    hot = Annotation(NOW, NOW + 50, "alert", "hot", "GPU-0")
    keeper.annotate([hot])
    keeper.journal()
    assert keeper.archive is not None
    with keeper.archive.connection as connection:
        connection.execute("DELETE FROM annotations")  # as when there are too many
    keeper.journal()
    assert keeper.annotations(0.0, 1e18) == []


def test_a_hundred_thousand_readings_leave_nothing_behind_in_memory(keeper: HistoryKeeper) -> None:
    tracemalloc.start()
    try:
        feed(keeper, NOW + np.arange(10_000.0), every=1.0)
        early, _ = tracemalloc.get_traced_memory()
        feed(keeper, NOW + 10_000 + np.arange(90_000.0), every=1.0)
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert late - early < 90_000 * 8, "less than one number for each reading"


def test_a_device_that_is_forgotten_stays_on_disk_and_leaves_the_memory(
    keeper: HistoryKeeper,
) -> None:
    times = NOW + EVERY * np.arange(50)
    for device in ("lab1/GPU-0", "GPU-0"):
        feed(keeper, times, device)
    tracemalloc.start()
    for i in range(100):
        feed(keeper, times, f"lab1/{i}")
        keeper.forget(f"lab1/{i}")
    keeper.forget("lab1/GPU-0")
    keeper.forget("lab1/never-read")
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 200_000, "bytes; a buffer of 50 readings has 1600"
    for device in ("lab1/GPU-0", "lab1/99", "GPU-0"):
        found = keeper.past(device, ("util",), NOW, NOW + DAY, None)
        assert len(found.times) == 50
