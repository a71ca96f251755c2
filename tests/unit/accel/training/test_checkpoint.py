"""Checkpoints are written while training goes on, and appear whole or not at all."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

from gpudeck.accel.training.checkpoint import About, Checkpoints
from gpudeck.accel.training.errors import Stopped
from gpudeck.accel.training.settings import Settings
from tests.unit.accel.training.runs import train


def about(step: int) -> About:
    return About(step, Settings(), "", "", "cpu", 1, {}, 0.0)


def test_a_checkpoint_is_what_it_was_when_it_was_saved(tmp_path: Path) -> None:
    checkpoints, go = Checkpoints(tmp_path, 2), Event()
    weight = torch.ones(3)
    checkpoints.save(about(1), {"w": weight}, lambda: bool(go.wait(60)))
    weight.zero_()  # training goes on
    assert checkpoints.steps() == []  # not whole yet, so not there
    go.set()
    checkpoints.wait()
    assert checkpoints.steps() == [1]
    assert checkpoints.load_step(1)[1]["w"].tolist() == [1, 1, 1]


def test_what_could_not_be_written_is_said_and_the_earlier_one_stays(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no space left")

    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(about(1), {"w": torch.ones(3)}, lambda: None)
    checkpoints.save(about(2), {"w": torch.zeros(3)}, fail)
    with pytest.raises(OSError, match="no space left"):
        checkpoints.save(about(3), {"w": torch.zeros(3)}, lambda: None)
    checkpoints.wait()
    assert checkpoints.steps() == [1]


def test_a_run_ends_with_its_last_checkpoint_on_disk(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("A queue keeps the GPU busy.\n" * 90)
    run = train(data, tmp_path / "out", model="tiny", steps=7)
    assert run.checkpoints.steps()[-1] == 7
    assert sorted(p.name for p in (tmp_path / "out" / "checkpoints").iterdir()) == [
        f"step-{step:08}" for step in run.checkpoints.steps()
    ]


def test_a_run_that_was_stopped_where_a_held_out_loss_is_due_measures_it_later(
    tmp_path: Path,
) -> None:
    data = tmp_path / "text.txt"
    data.write_text("A queue keeps the GPU busy.\n" * 90)
    given: dict[str, Any] = {"model": "tiny", "steps": 8, "evaluate": 4, "held_out": 0.1}
    given["checkpoint"] = 100  # none before the run is stopped
    whole = train(data, tmp_path / "whole", **given)
    with pytest.raises(Stopped, match="after step 4"):
        train(data, tmp_path / "cut", stop=4, **given)
    cut = train(data, tmp_path / "cut", **given)
    held_out = [
        [(row.step, row.held_out) for row in run.journal.rows if row.held_out is not None]
        for run in (whole, cut)
    ]
    assert [step for step, _ in held_out[0]] == [0, 4, 8]
    assert held_out[0] == held_out[1]
