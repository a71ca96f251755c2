"""Curves of runs from logs and event files, and the table of runs."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.app.charts.printed_curves import PrintedCurves
from gpudeck.app.runs import run_curves
from gpudeck.app.runs.event_files import Scalar, created, scalars
from gpudeck.app.runs.run_curves import RunCurve, event_curves, event_files
from gpudeck.app.runs.run_table import run_parameters, run_rows, sorted_rows, value_names
from gpudeck.scheduler.protocol.jobs import Done, Job, Spec, listed

RECORDED = Path(__file__).parents[2] / "integration/data/events.out.tfevents.1795601625.vm.30551.0"
"""Written by the SummaryWriter of TensorBoard 2.21: scalars of both styles, a text, a histogram."""


def test_scalars_are_read_as_tensorboard_wrote_them() -> None:
    curves = event_curves([RECORDED])
    steps = tuple(map(float, range(0, 50, 5)))
    assert set(curves) == {"train/loss", "lr", "new/style"}
    assert curves["train/loss"].steps == steps
    assert curves["train/loss"].values == pytest.approx([4 / (i + 1) for i in range(0, 50, 5)])
    assert curves["lr"].values == pytest.approx([3e-4 * min(1, i / 10) for i in range(0, 50, 5)])
    assert curves["new/style"] == RunCurve((7.0,), (1.5,))
    assert created(RECORDED) == 1795601625.0


def test_a_file_that_is_still_written_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole, file = RECORDED.read_bytes(), tmp_path / "events.out.tfevents.1.x"
    known = list(scalars(RECORDED))
    for cut in range(0, len(whole), 97):
        file.write_bytes(whole[:cut])
        found = list(scalars(file))
        assert found == known[: len(found)]


def test_hostile_files_are_harmless(tmp_path: Path) -> None:
    chance, file = random.Random(5), tmp_path / "events.out.tfevents.1.x"
    whole = RECORDED.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 30)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file.write_bytes(data)
        list(scalars(file))
    file.unlink()
    os.mkfifo(file)  # an open would wait for somebody who writes
    assert event_curves([file]) == {}
    file.unlink()
    for data in (b"\xff" * 4096, struct.pack("<Q", 2**63) + b"\0" * 64, b"\0" * 4096):
        file.write_bytes(data)
        assert list(scalars(file)) == []


def test_the_files_of_a_run_are_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in "ab"]
    for file in files:
        file.write_bytes(RECORDED.read_bytes())
    whole = RECORDED.stat().st_size
    monkeypatch.setattr(run_curves, "MOST_BYTES", whole + whole // 2)
    read: list[int] = []

    def noted(file: Path, most: int) -> Iterator[Scalar]:
        read.append(most)
        return scalars(file, most)

    monkeypatch.setattr(run_curves, "scalars", noted)
    event_curves(files)
    assert read == [whole + whole // 2, whole // 2]


@pytest.mark.parametrize("name", ["²", "1" * 13, "", "x"])
def test_a_file_whose_name_tells_no_time_belongs_to_no_run(name: str) -> None:
    assert created(Path(f"events.out.tfevents.{name}")) is None


def job(number: int, argv: tuple[str, ...], result: dict[str, object], cwd: str = "/") -> Job:
    spec = Spec(argv, f"run-{number}", cwd)
    return Job(
        number, spec, 0.0, Done(100.0, 200.0, result=msgspec.Raw(msgspec.json.encode(result)))
    )


def test_files_below_the_folder_belong_to_the_job_that_ran_then(tmp_path: Path) -> None:
    made = {}
    for stamp in (50, 99, 100, 150, 250):
        folder = tmp_path / "runs" / str(stamp)
        folder.mkdir(parents=True)
        made[stamp] = folder / f"events.out.tfevents.{stamp}.host.1.0"
        made[stamp].touch()
    left = tmp_path / "artefacts" / "events.out.tfevents.7.host"
    found = event_files(job(1, ("x",), {}, str(tmp_path)), [left, tmp_path / "model.pt"])
    assert found == sorted([left, made[100], made[150]])


def test_printed_values_lie_at_their_steps() -> None:
    printed = PrintedCurves()
    printed.feed(b'{"step": 10, "loss": 3}\nepoch=2 acc=0.5\n{"step": 30, "loss": 2}\nacc=0.7\n')
    points = {name: (x.tolist(), y.tolist()) for name, (x, y) in printed.points.items()}
    assert points == {"loss": ([10, 30], [3, 2]), "acc": ([2, 3], [0.5, 0.7])}


@pytest.mark.parametrize(
    ("argv", "given"),
    [
        ("train --lr 3e-4 --bf16 --epochs=3", {"lr": "3e-4", "bf16": "yes", "epochs": "3"}),
        ("python train.py lr=1 data.path=/x", {"lr": "1", "data.path": "/x"}),
        ("python -m train --shift -0.5", {"m": "train", "shift": "yes"}),
        ("./run a b", {}),
    ],
)  # fmt: skip
def test_parameters_are_read_from_the_command(argv: str, given: dict[str, str]) -> None:
    assert run_parameters(Spec(tuple(argv.split()), "x", "/")) == given


def test_the_figures_of_a_result_come_first_and_those_of_other_programs_do_no_harm() -> None:
    figures = [{"name": "loss", "value": 2.5}, {"name": "speed", "value": 7, "unit": "tokens/s"}]
    own = run_rows([job(1, ("train",), {"tflops": 0.5, "figures": figures})])
    assert own[0].values == {"loss": 2.5, "speed": 7.0, "tflops": 0.5}
    assert value_names(own) == ("loss", "speed", "tflops")
    curve = {"name": "loss", "values": [2.5] * 9000}
    large = job(1, ("train",), {"curves": [curve], "figures": figures})
    assert listed(large).result != large.result
    assert run_rows([listed(large)])[0].values == {"loss": 2.5, "speed": 7.0}
    for foreign in (3, [1, 2], [{"name": "loss"}], {"loss": 1}):
        (row,) = run_rows([job(1, ("train",), {"acc": 0.5, "figures": foreign})])
        assert row.values["acc"] == 0.5


def test_runs_are_sorted_by_any_value_or_parameter() -> None:
    results: list[dict[str, object]] = [{"loss": 2.0, "ok": True}, {"loss": 1.5, "acc": 0.9}, {}]
    jobs = [
        job(n, ("train", "--seed", "1", "--lr", lr), result)
        for n, lr, result in zip((1, 2, 3), ("1e-3", "1e-4", "1e-5"), results, strict=True)
    ]
    rows = run_rows(jobs)
    assert [row.parameters for row in rows] == [{"lr": "1e-3"}, {"lr": "1e-4"}]
    assert value_names(rows) == ("loss", "acc")
    assert [row.job.id for row in sorted_rows(rows, "loss")] == [2, 1]
    assert [row.job.id for row in sorted_rows(rows, "loss", descending=True)] == [1, 2]
    assert [row.job.id for row in sorted_rows(rows, "lr")] == [2, 1]
    assert [row.job.id for row in sorted_rows(rows, "acc", descending=True)] == [2, 1], "last"


def test_whole_numbers_beyond_all_floats_are_left_out_of_a_table() -> None:
    huge = job(1, ("x",), {})
    state = Done(100.0, 200.0, result=msgspec.Raw(b'{"loss": 1%s, "acc": 2}' % (b"0" * 400)))
    (row,) = run_rows([msgspec.structs.replace(huge, state=state)])
    assert row.values == {"acc": 2.0}
