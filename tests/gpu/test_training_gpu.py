"""Training on a GPU: the loss against float64, and runs that continue and repeat."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from gpudeck.accel.training import loss
from gpudeck.accel.training.errors import Stopped
from tests.unit.accel.training.runs import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")

TEXT = "A queue keeps the GPU busy, and a test keeps the queue honest.\n" * 40
BFLOAT = {"model": "tiny", "precision": "bfloat16", "tokens": 64, "batch": 4}


@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_loss_and_gradients_are_those_of_float64(monkeypatch, softcap: float) -> None:
    monkeypatch.setattr(loss, "_PART_BYTES", 2**21)  # several parts, the last one shorter
    torch.manual_seed(0)
    hidden = torch.randn(700, 64, device="cuda").bfloat16().requires_grad_()
    head = (torch.randn(5000, 64, device="cuda") / 16).requires_grad_()
    targets = torch.randint(0, 5000, (700,), device="cuda")
    targets[::7] = loss.IGNORED
    scale = 1 / 600
    found = loss.cross_entropy(hidden, head, targets, scale, softcap)
    found.backward()
    exact_hidden = hidden.detach().double().requires_grad_()
    exact_head = head.detach().bfloat16().double().requires_grad_()
    scores = exact_hidden @ exact_head.T
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    exact = scale * functional.cross_entropy(
        scores, targets, ignore_index=loss.IGNORED, reduction="sum"
    )
    exact.backward()
    assert found.item() == pytest.approx(exact.item(), rel=2e-3)
    for ours, true in ((hidden.grad, exact_hidden.grad), (head.grad, exact_head.grad)):
        error = (ours.double() - true).norm() / true.norm()
        assert float(error) < 8e-3  # bfloat16 keeps 8 bits


def test_a_run_in_bfloat16_repeats_and_continues_to_the_last_bit(tmp_path) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    first = train(data, tmp_path / "first", **BFLOAT)
    again = train(data, tmp_path / "again", **BFLOAT)
    with pytest.raises(Stopped, match="after step 4"):  # the numbers of a step come one step later
        train(data, tmp_path / "cut", stop=3, **BFLOAT)
    cut = train(data, tmp_path / "cut", **BFLOAT)
    kept = [
        [(row.step, row.loss, row.norm) for row in run.journal.rows] for run in (first, again, cut)
    ]
    assert kept[0] == kept[1] == kept[2]
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("first", "again", "cut")]
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.parametrize("model", ["tiny", "rwkv7-tiny"])
def test_losses_in_bfloat16_are_near_those_in_float32(tmp_path, model: str) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    given = {"model": model, "tokens": 64, "batch": 4}
    plain = train(data, tmp_path / "plain", **given, precision="float32")
    short = train(data, tmp_path / "short", **given, precision="bfloat16")
    pairs = zip(plain.journal.rows, short.journal.rows, strict=True)
    for one, other in pairs:
        if one.loss is not None:
            assert other.loss == pytest.approx(one.loss, rel=0.02)


def test_states_of_an_rwkv7_are_tuned_and_continue_to_the_last_bit(tmp_path) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    given = {**BFLOAT, "model": "rwkv7-tiny"}
    train(data, tmp_path / "base", **given)
    more = {**given, "base": str(tmp_path / "base"), "method": "state", "rate": 0.3}
    run = train(data, tmp_path / "tuned", **more)
    losses = [row.loss for row in run.journal.rows if row.loss is not None]
    assert losses[-1] < losses[0]
    with pytest.raises(Stopped):
        train(data, tmp_path / "cut", stop=3, **more)
    train(data, tmp_path / "cut", **more)
    states, others = (
        load_file(tmp_path / name / "states" / "states.safetensors") for name in ("tuned", "cut")
    )
    assert states and all(torch.equal(state, others[name]) for name, state in states.items())
    assert all(state.abs().max() > 0 for state in states.values())
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("base", "tuned"))
    assert torch.equal(before["lm_head.weight"], after["lm_head.weight"])


def test_where_memory_ends_layers_are_computed_again(tmp_path) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT * 20)
    given = {**BFLOAT, "model": "15M", "tokens": 1024, "batch": 16, "steps": 4}
    whole = train(data, tmp_path / "whole", **given)
    most = torch.cuda.max_memory_reserved()
    del whole
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.75 * most / total)
    try:
        small = train(data, tmp_path / "small", **given)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert small.model.recompute
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "small")]
    assert weights[0] == weights[1]


def test_lines_say_the_share_of_the_peak_and_the_energy_of_a_token(tmp_path) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    words = ("model=15M", f"data={data}", "steps=30", "batch=8", "tokens=256", "compile=no")
    command = [sys.executable, "-m", "gpudeck.accel.workloads.train", *(f"--{w}" for w in words)]
    done = subprocess.run(
        [*command, f"--out={tmp_path / 'out'}"], check=True, capture_output=True, text=True,
        env={**os.environ, "GPUDECK_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines() if '"seconds"' in line]
    assert rows
    assert all(0 < row["mfu"] < 1 for row in rows)
    assert rows[-1]["mj_per_token"] > 0


def test_what_a_process_compiled_serves_the_next_one(tmp_path) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    words = ("model=rwkv7-tiny", f"data={data}", "steps=3", "batch=4", "tokens=64", "compile=yes")
    command = [sys.executable, "-m", "gpudeck.accel.workloads.train", *(f"--{w}" for w in words)]
    homes = {"GPUDECK_HOME": str(tmp_path / "home"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "c")}
    losses = []
    for out in (tmp_path / "first", tmp_path / "second"):
        subprocess.run(
            [*command, f"--out={out}"], check=True, capture_output=True, env={**os.environ, **homes}
        )
        rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        losses.append([row["loss"] for row in rows if "loss" in row])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "muon"])
def test_moments_in_8_bits_and_an_average_continue_to_the_last_bit(tmp_path, optimizer) -> None:
    data = tmp_path / "text.txt"
    data.write_text(TEXT)
    given = {**BFLOAT, "optimizer": optimizer, "moments": "8bit", "average": 0.9, "rate": 1e-3}
    whole = train(data, tmp_path / "whole", **given)
    with pytest.raises(Stopped):
        train(data, tmp_path / "cut", stop=3, **given)
    cut = train(data, tmp_path / "cut", **given)
    losses = [[row.loss for row in run.journal.rows] for run in (whole, cut)]
    assert losses[0] == losses[1]
    weights = [(tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "cut")]
    assert weights[0] == weights[1]
