"""Runs that several processes compute, beside the same run in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gpudeck.accel.serving import tiny
from gpudeck.accel.training import api
from gpudeck.accel.training.errors import Refused
from tests.unit.accel.training.runs import train

SETTINGS = (
    "--model=tiny", "--batch=4", "--tokens=32", "--checkpoint=2", "--evaluate=4", "--held-out=0.01",
)  # fmt: skip


def divided(out: Path, steps: int, *more: str) -> str:
    command = (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
        "-m", "gpudeck.accel.workloads.train", *SETTINGS, f"--steps={steps}", f"--out={out}",
    )  # fmt: skip
    done = subprocess.run([*command, *more], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(out: Path) -> list[float]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [row.get("loss", row.get("held_out")) for row in rows]


CASES = {
    "weights": ("--shard=weights",),
    "gradients": ("--shard=gradients",),
    "tokens": ("--split=tokens",),
    "tokens, no documents": ("--split=tokens", "--documents=no", "--batch=1", "--recompute=yes"),
    "LoRA": ("--base=BASE", "--method=lora"),
    "LoRA, tokens": ("--base=BASE", "--method=lora", "--split=tokens"),
    "muon": ("--optimizer=muon",),
    "8 bits, average": ("--moments=8bit", "--average=0.9"),
}


SLOW = ("gradients", "tokens", "tokens, no documents", "LoRA", "muon", "8 bits, average")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES]
)
def test_two_processes_train_as_one_does(tmp_path: Path, case: str) -> None:
    one, two, base = (tmp_path / name for name in ("one", "two", "base"))
    more = [word.replace("BASE", str(base)) for word in CASES[case]]
    if "LoRA" in case:
        tiny.make(base)
    train_alone = (sys.executable, "-m", "gpudeck.accel.workloads.train")
    subprocess.run(
        [*train_alone, *SETTINGS, "--steps=4", f"--out={one}", *more],
        check=True, capture_output=True,
    )  # fmt: skip
    said = divided(two, 4, *more)
    assert said.count("the model is ready") == 1, "only the first process speaks"
    rtol = 1e-4 if case == "muon" else 1e-5  # Muon makes matrices orthogonal in bfloat16
    torch.testing.assert_close(losses(two), losses(one), rtol=rtol, atol=0)
    weights, others = (load_file(out / "model.safetensors") for out in (one, two))
    torch.testing.assert_close(others, weights, rtol=0.02, atol=2e-3)
    # continued from the middle, it is the same to the last bit
    before, end = losses(two), (two / "model.safetensors").read_bytes()
    for last in (two / "checkpoints").glob("step-*4"):
        last.rename(last.with_name("gone"))
    assert "continued after step 2" in divided(two, 4, *more)
    assert losses(two) == before
    assert (two / "model.safetensors").read_bytes() == end


def test_a_batch_that_cannot_be_divided_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "count_ranks", lambda: 3)
    with pytest.raises(Refused, match="4 cannot be divided among 3 processes"):
        train(tmp_path / "text.txt", tmp_path / "out")
    with pytest.raises(Refused, match="reads its tokens in order"):
        train(tmp_path / "text.txt", tmp_path / "out", model="rwkv7-tiny", split="tokens")
