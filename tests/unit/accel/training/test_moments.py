"""What an optimizer remembers in eight bits, and the moving average of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gpudeck.accel.training.average import Average
from gpudeck.accel.training.errors import Stopped
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.moments import decode, encode
from tests.unit.accel.training.runs import train

TEXT = "A queue keeps the GPU busy, and a test keeps the queue honest.\n" * 40
DRAW = torch.Generator().manual_seed(4)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


@pytest.mark.parametrize("columns", [16, 256, 700])
@pytest.mark.parametrize("signed", [True, False])
def test_codes_stand_for_nearly_the_same_numbers(columns: int, signed: bool) -> None:
    x = torch.randn(5, columns, generator=DRAW) * torch.logspace(-9, 3, 5).unsqueeze(1)
    x = x if signed else x.abs()
    ((codes, scales),) = encode([x], signed=signed)
    assert codes.dtype == torch.uint8
    assert codes.shape == x.shape
    (again,) = decode([(codes, scales)], signed=signed)
    assert ((again - x).norm(dim=1) < (0.015 if signed else 0.03) * x.norm(dim=1)).all()


@pytest.mark.parametrize("signed", [True, False])
def test_matrices_are_encoded_together_as_each_by_itself(signed: bool) -> None:
    xs = [torch.randn(3, columns, generator=DRAW).square() for columns in (16, 700, 256, 512)]
    together = encode(xs, signed=signed)
    for x, pair in zip(xs, together, strict=True):
        (alone,) = encode([x], signed=signed)
        assert torch.equal(alone[0], pair[0])
        assert torch.equal(alone[1], pair[1])
    for pair, again in zip(together, decode(together, signed=signed), strict=True):
        assert torch.equal(again, *decode([pair], signed=signed))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's compiler itself
@pytest.mark.parametrize("columns", [16, 700])
@pytest.mark.parametrize("signed", [True, False])
def test_compiled_codes_stand_for_the_same_numbers(columns: int, signed: bool) -> None:
    x = torch.randn(5, columns, generator=DRAW)
    x = x if signed else x.abs()
    (same,) = encode([x], signed=signed)
    (again,) = encode([x], signed=signed, compiled=True)
    torch.testing.assert_close(again[1], same[1])
    torch.testing.assert_close(
        *decode([same], signed=signed, compiled=True), *decode([same], signed=signed)
    )
    assert (again[0] != same[0]).sum() <= 1  # at a limit between two numbers


def test_roots_of_second_moments_never_become_zero_beside_larger_ones() -> None:
    x = torch.logspace(-30, 0, 300).unsqueeze(0)
    (again,) = decode(encode([x], signed=False), signed=False)
    assert (again > 0).all()
    nothing = torch.zeros(2, 300)
    for signed in (True, False):
        assert torch.equal(*decode(encode([nothing], signed=signed), signed=signed), nothing)


def losses(run: Run) -> list[float]:
    return [row.loss for row in run.journal.rows if row.loss is not None]


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "muon"])
def test_eight_bits_train_nearly_as_float32_and_continue_to_the_last_bit(
    optimizer: str, data: Path, tmp_path: Path
) -> None:
    given = {"model": "tiny", "optimizer": optimizer, "steps": 12, "rate": 3e-3}
    if optimizer == "lion":
        given["rate"] = 6e-4
    full = train(data, tmp_path / "full", **given)
    given["moments"] = "8bit"
    short = train(data, tmp_path / "short", **given)
    assert losses(short) != losses(full)
    assert losses(short) == pytest.approx(losses(full), rel=0.02)
    states = {n: v for n, v in short.optimizer.states().items() if v.dim() > 1}
    assert {v.dtype for n, v in states.items() if n.endswith("codes")} == {torch.uint8}
    held = sum(value.nbytes for value in states.values())
    wide = sum(v.nbytes for v in full.optimizer.states().values() if v.dim() > 1)
    assert held < 0.27 * wide
    with pytest.raises(Stopped, match="after step 7"):
        train(data, tmp_path / "cut", stop=7, **given)
    cut = train(data, tmp_path / "cut", **given)
    assert losses(cut) == losses(short)
    weights, others = (load_file(tmp_path / n / "model.safetensors") for n in ("short", "cut"))
    assert all(torch.equal(weight, others[name]) for name, weight in weights.items())


def test_an_average_follows_the_weights() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    average = Average({"w": weight}, 0.9)
    weight.data = torch.tensor([3.0, 0.0])
    average.update(1)  # the first steps count more: (1 + 1) / (10 + 1) of it is kept
    first = torch.tensor([1.0, -2.0]) * 2 / 11 + torch.tensor([3.0, 0.0]) * 9 / 11
    torch.testing.assert_close(average.states()["w"], first)
    weight.data = torch.tensor([5.0, 5.0])
    average.update(1000)
    torch.testing.assert_close(average.states()["w"], 0.9 * first + 0.1 * weight.detach())


def test_the_average_is_evaluated_and_written_and_continues_to_the_last_bit(
    data: Path, tmp_path: Path
) -> None:
    given = {"model": "tiny", "steps": 12, "evaluate": 4, "held_out": 0.1}
    plain = train(data, tmp_path / "plain", **given)
    given["average"] = 0.9
    run = train(data, tmp_path / "run", **given)
    assert losses(run) == losses(plain)  # training does not see it
    held = [[row.held_out for row in one.journal.rows if row.held_out] for one in (plain, run)]
    assert held[0][0] == held[1][0]
    assert held[0][1:] != held[1][1:]
    assert run.average is not None
    written = load_file(tmp_path / "run" / "model.safetensors")
    averages = run.average.states()
    assert all(torch.equal(written[name], value) for name, value in averages.items())
    own = dict(run.model.named_parameters())
    assert not torch.equal(own["model.norm.weight"], averages["model.norm.weight"])
    with pytest.raises(Stopped):
        train(data, tmp_path / "cut", stop=7, **given)
    train(data, tmp_path / "cut", **given)
    again = load_file(tmp_path / "cut" / "model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in written.items())
