"""Test that status and watch fit every terminal and cannot be used to control it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.app.cli.assistant import bench, events
from gpudeck.app.cli.assistant.markdown import print_markdown
from gpudeck.app.cli.devices.panels import bar
from gpudeck.app.cli.devices.screen import status_lines, watch_lines
from gpudeck.app.cli.output import StyledLine, print_table, render
from gpudeck.app.cli.queue.jobs import print_list
from gpudeck.assistant.host_protocol import Waiting
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.jobs import queued
from gpudeck.scheduler.protocol.snapshot import Alert, Snapshot
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from tests.gui import snapshots


def texts(lines: list[StyledLine]) -> list[str]:
    return ["".join(p.text for p in line) for line in lines]


def matter(made: Snapshot) -> Snapshot:
    alert = Alert(1, "too hot", made.devices[0].device.id, None, "GPU 0 is at 88 °C", 0.0, 0.0)
    return msgspec.structs.replace(made, alerts=(alert,), notices=("the disk is full",))


@pytest.mark.parametrize("count", [1, 8, 72])
@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (120, 40), (200, 60), (20, 5)])
def test_watch_fits_the_terminal(count: int, width: int, height: int) -> None:
    lines = texts(watch_lines(matter(snapshots.gpu_snapshot(count)), width, height))
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "q or Ctrl+C to quit"[:width] in lines[-1]


def test_8_gpus_have_a_line_each_and_72_fit_a_small_terminal() -> None:
    eight = texts(watch_lines(matter(snapshots.gpu_snapshot(8)), 80, 24))
    assert [line.split()[1] for line in eight if line.startswith("GPU ")][:8] == [
        str(i) for i in range(8)
    ]
    assert "GPU 0 is at 88 °C" in eight
    assert "the disk is full" in eight
    assert any(line.startswith("job 8 · attention: running") for line in eight)
    many = texts(watch_lines(matter(snapshots.gpu_snapshot(72)), 80, 30))
    assert "of 72 devices" in many[1]
    assert all(f" {i} " in " ".join(many) for i in range(72))
    assert "GPU 0 is at 88 °C" in many


def test_columns_that_do_not_fit_are_dropped() -> None:
    made = snapshots.gpu_snapshot(2)
    wide, narrow = texts(status_lines(made, 0)), texts(status_lines(made, 60))
    assert "NAME" in wide[0]
    assert "H100 80GB HBM3" in wide[1]
    assert texts(status_lines(made, max(map(len, wide)))) == wide, "all columns just fit"
    assert "NAME" not in narrow[0]
    assert narrow[1].startswith("GPU 0")
    assert "UTILISATION" in narrow[0]
    assert max(map(len, narrow)) <= 60


@given(st.text(max_size=30))
def test_names_cannot_control_the_terminal(text: str) -> None:
    hostile = f"\x1b]0;owned\x07\x9b31m{text}"
    made = snapshots.gpu_snapshot(1)
    job = msgspec.structs.replace(
        made.jobs[1], spec=msgspec.structs.replace(made.jobs[1].spec, name=hostile)
    )
    device = msgspec.structs.replace(
        made.devices[0], device=msgspec.structs.replace(made.devices[0].device, name=hostile)
    )
    made = msgspec.structs.replace(made, jobs=(job,), devices=(device,), notices=(hostile,))
    for lines in (status_lines(made, 0), watch_lines(made, 100, 20)):
        assert all(line.isprintable() for line in texts(lines))


def test_colors_show_a_meaning_and_can_be_disabled() -> None:
    device = snapshots.gpu(0)
    hot = snapshots.snapshot(
        (snapshots.DeviceState(device, snapshots.gpu_reading(device, temp=86), snapshots.Idle(0)),)
    )
    painted = render(status_lines(hot, 0)[1], color=True)
    assert "\x1b[31m86 °C" in painted
    assert "\x1b" not in render(status_lines(hot, 0)[1], color=False)


def test_columns_are_aligned_with_wide_and_combining_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([("NAME", "STATE"), ("日本 e\u0301", "done"), ("ascii", "failed")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    STATE",
        "日本 e\u0301  done",
        "ascii   failed",
    ]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (200, ["JOB  NAME   ", " 12  train  waits: GPU 0 is held by job 8 until about 14:32"]),
        (
            40,
            [
                "JOB  NAME",
                " 12  train  waits: GPU 0 is held by job",
                "            8 until about 14:32",
            ],
        ),
        (
            24,
            [
                "JOB  NAME",
                " 12  train",
                "    waits: GPU 0 is held",
                "    by job 8 until about",
                "    14:32",
            ],
        ),
    ],
)
def test_a_long_last_cell_is_wrapped(
    columns: int,
    lines: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(
        [("JOB", "NAME", ""), ("12", "train", "waits: GPU 0 is held by job 8 until about 14:32")],
        right=(0,),
    )
    assert capsys.readouterr().out.splitlines() == [line.rstrip() for line in lines]


@pytest.mark.parametrize("columns", [40, 60, 79, 120])
def test_the_list_of_jobs_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    jobs = [
        *snapshots.cpu_snapshot().jobs,
        snapshots.job(
            123_456, queued(StartFailed("x " * 90), 0.0), name="a-name-that-is-far-too-long" * 3
        ),
    ]
    print_list(jobs)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    assert all(any(line.split()[:1] == [str(job.id)] for line in lines) for job in jobs)
    assert ("SUBMITTED" in lines[0]) == (columns >= 80)


def details(count: int) -> tuple[Detail, ...]:
    device = snapshots.gpu(0)
    processes = tuple(
        Process(
            4000 + i,
            "python",
            "ada",
            (count - i) * 2.0**30,
            8 if i == 0 else None,
            command=f"python train.py --run={i} \x1b[31m",
            sm=90.0 - i,
        )
        for i in range(count)
    )
    return (Detail(device.id, 0.0, (), processes),)


@pytest.mark.parametrize("count", [0, 1, 3, 60])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (72, 20), (60, 24), (200, 60)])
def test_watch_shows_bars_and_processes_where_there_is_room(
    count: int, width: int, height: int
) -> None:
    made = snapshots.gpu_snapshot(1)
    lines = texts(watch_lines(made, width, height, details(count)))
    assert len(lines) == height and max(map(len, lines)) <= width
    assert all(line.isprintable() for line in lines)
    if width >= 72:
        bars = next(line for line in lines if line.startswith("UTIL █"))
        assert "MEM █" in bars and len(bars) >= width - 2
        assert "GiB" in bars and "%" in bars
        assert any("H100 80GB HBM3" in line and "job 8" in line for line in lines)
    if count:
        at = next(i for i, line in enumerate(lines) if line.startswith("DEVICE") and "PID" in line)
        assert lines[at + 1].split()[:2] == ["GPU", "0"]
        assert "4000" in lines[at + 1] and (width < 72 or "python train" in lines[at + 1])
    if count == 60:
        assert any(line.endswith("more processes") for line in lines)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "░░░░"), (1.0, "████"), (0.5, "██░░"), (0.53125, "██▏░"), (None, "░░░░"), (7.0, "████")],
)
def test_a_bar_is_filled_by_eighths(share: float | None, text: str) -> None:
    assert bar(share, 4) == text


def test_a_script_is_told_once_why_the_assistant_waits(capsys, monkeypatch):
    monkeypatch.setattr(events, "_TOLD", set())
    for seconds in (15, 14, 13):
        events.show_event(Waiting(f"waiting for idle devices (GPU 0: idle in {seconds} s)", True))
    events.show_event(Waiting("waiting for idle devices (GPU 0: job 7 runs)", True))
    events.show_event(Waiting("the model tiny is writing"))
    for reason, gpu in (("starting the engine", False), ("waiting for the GPU (job 7 runs)", True)):
        bench._show(bench.Waiting(reason, gpu=gpu))
    assert capsys.readouterr().err.splitlines() == [
        "waiting for idle devices (GPU 0: idle in 15 s) (--cpu: run on the CPU now)",
        "waiting for idle devices (GPU 0: job 7 runs) (--cpu: run on the CPU now)",
        "waiting for the GPU (job 7 runs) (--cpu: run on the CPU now)",
    ]


def test_a_table_of_the_manual_has_no_line_below_its_heads(capsys):
    print_markdown("| tool | does |\n|---|---|\n| `ask` | answers |\n\n| a | - |\n| --- | --- |")
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["tool   does", "`ask`  answers", "", "a  -"]
