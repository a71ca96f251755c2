"""A run goes back to its newest checkpoint where a step goes wrong, and leaves its batch out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from gpudeck.accel.training.batches import Batch
from gpudeck.accel.training.errors import Diverged, Stopped
from gpudeck.accel.training.loop import Run
from tests.unit.accel.training.runs import train

TEXT = "A queue keeps the GPU busy, and a test keeps the queue honest.\n" * 90
NEW: dict[str, Any] = {"model": "tiny", "steps": 30, "checkpoint": 4, "average": 0.9}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def spoil(monkeypatch: pytest.MonkeyPatch, step: int, factor: float) -> None:
    """Multiply the gradients of a step."""
    whole = Run.loss

    def loss(run: Run, batch: Batch, scale: float) -> Tensor:
        spoilt = run.step == step and torch.is_grad_enabled()
        return whole(run, batch, scale) * (factor if spoilt else 1.0)

    monkeypatch.setattr(Run, "loss", loss)


def weights(out: Path) -> dict[str, Tensor]:
    return load_file(out / "model.safetensors")


def equal(one: Path, other: Path) -> bool:
    others = weights(other)
    return all(torch.equal(weight, others[name]) for name, weight in weights(one).items())


@pytest.mark.parametrize(
    ("step", "factor", "more"), [(6, float("nan"), {}), (26, 1000.0, {"spike": 20.0})]
)
def test_a_step_that_goes_wrong_ends_the_run_or_is_left_out(
    step: int, factor: float, more: dict[str, float], data: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spoil(monkeypatch, step, factor)
    with pytest.raises(Diverged, match=f"the loss of step {step} is .* rewind=1, which leaves it"):
        train(data, tmp_path / "out", **NEW, **more)
    run = train(data, tmp_path / "out", **NEW, **more, rewind=1)  # the same folder goes on
    assert run.left_out == (step,)
    steps = [row.step for row in run.journal.rows if row.loss is not None]
    assert steps == [number for number in range(1, 31) if number != step]
    assert all(torch.isfinite(weight).all() for weight in weights(tmp_path / "out").values())
    # interrupted after the rewinding, and before it, the run is equal to the last bit
    for stop in (step + 2, step - 1):
        out = tmp_path / f"cut-{stop}"
        with pytest.raises(Stopped):
            train(data, out, stop=stop, **NEW, **more, rewind=1)
        train(data, out, **NEW, **more, rewind=1)
        assert equal(out, tmp_path / "out")


def test_a_run_that_goes_wrong_too_often_or_too_early_ends(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, 2, float("nan"))
    with pytest.raises(Diverged, match="step 2"):  # no checkpoint is there
        train(data, tmp_path / "early", **NEW, rewind=5)
    monkeypatch.undo()
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    spoil(monkeypatch, 6, float("nan"))
    spoil(monkeypatch, 9, float("nan"))
    with pytest.raises(Diverged, match="step 9"):
        train(data, tmp_path / "often", **NEW, rewind=1)
    assert train(data, tmp_path / "often", **NEW, rewind=2).left_out == (6, 9)


@pytest.mark.parametrize("model", ["tiny", "rwkv7-tiny"])
def test_where_memory_ends_layers_are_computed_again_and_nothing_else_changes(
    model: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = {**NEW, "model": model, "steps": 6}
    train(data, tmp_path / "whole", **new)
    whole = Run.loss

    def loss(run: Run, batch: Batch, scale: float) -> Tensor:
        found = whole(run, batch, scale)
        if run.step >= 2 and not run.model.recompute and torch.is_grad_enabled():
            found.backward()  # type: ignore[no-untyped-call]
            raise torch.OutOfMemoryError
        return found

    monkeypatch.setattr(Run, "loss", loss)
    run = train(data, tmp_path / "small", **new)
    assert run.model.recompute
    assert equal(tmp_path / "small", tmp_path / "whole")
