"""Models in folders are trained further: with transformers' gradients, and with LoRA as peft's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))
from serving_models import FAMILIES, oracle

from gpudeck.accel.serving import tiny
from gpudeck.accel.serving.errors import ModelRefused
from gpudeck.accel.training.adapters import FOLDER, Adapted
from gpudeck.accel.training.errors import Refused, Stopped
from gpudeck.accel.training.loop import Run
from gpudeck.accel.training.loss import cross_entropy
from gpudeck.accel.training.model import LanguageModel
from gpudeck.accel.training.projection import Quantized
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.start import start_of
from gpudeck.accel.training.tokenizers import ByteTokenizer
from gpudeck.accel.workloads.train import folder_of
from tests.unit.accel.training import runs

PEFT = pytest.mark.filterwarnings("default")  # peft uses deprecated names of transformers
TOKENS = torch.randint(3, 320, (2, 41), generator=torch.Generator().manual_seed(2))


def made(folder: Path, **more: Any) -> LanguageModel:
    settings = Settings(base=str(folder), **{"tokens": 64, **more})
    return start_of(settings, ByteTokenizer()).make(torch.device("cpu"), torch.float32)


def loss_of(model: LanguageModel) -> torch.Tensor:
    hidden = model(TOKENS[:, :-1], torch.float32, None).flatten(0, 1)
    softcap = model.config.final_softcap
    return cross_entropy(hidden, model.head, TOKENS[:, 1:].flatten(), 1 / 80, softcap)


def gradients(theirs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield gradients by the names of files, in which experts are apart from each other."""
    for name, weight in theirs.named_parameters():
        if ".experts." not in name:
            yield name, weight.grad
            continue
        at = name.rpartition(".")[0]
        for i, one in enumerate(weight.grad):
            if name.endswith("gate_up_proj"):
                for part, half in zip(("gate_proj", "up_proj"), one.chunk(2), strict=True):
                    yield f"{at}.{i}.{part}.weight", half
            else:
                yield f"{at}.{i}.down_proj.weight", one


@pytest.mark.parametrize("family", [name for name in FAMILIES if "Gemma 4" not in name])
def test_gradients_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    theirs = oracle(family, tmp_path)
    wanted = torch.nn.functional.cross_entropy(
        theirs(TOKENS[:, :-1]).logits.flatten(0, 1), TOKENS[:, 1:].flatten()
    )
    wanted.backward()
    model = made(tmp_path)
    found = loss_of(model)
    found.backward()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    ours = dict(model.named_parameters())
    names = set()
    for name, gradient in gradients(theirs):
        names.add(name)
        distance = (ours[name].grad - gradient).norm() / gradient.norm().clamp(min=1e-6)
        assert distance < 2e-4, name
    assert names == set(ours)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    tiny.make(tmp_path / "base")
    rows = "".join(f'{{"text": {msgspec.json.encode(s).decode()}}}\n' for s in tiny.sentences(200))
    (tmp_path / "data.jsonl").write_text(rows)
    return tmp_path / "base"


def train(base: Path, out: Path, stop: int = 0, **more: Any) -> Run:
    return runs.train(base.parent / "data.jsonl", out, stop, base=str(base), **more)


QUANTIZED = {"method": "lora", "quantize": True}


@pytest.mark.parametrize("how", [{}, {"method": "lora"}, QUANTIZED])
def test_the_result_opens_in_transformers_and_where_models_are_served(
    how: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    from serving_models import logits
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gpudeck.accel.serving.transformer import load

    out = tmp_path / "out"
    run = train(base, out, **how)
    losses = [row.loss for row in run.journal.rows if row.loss is not None]
    assert losses[-1] < losses[0] - 0.3
    tokens = TOKENS[:1]
    with torch.no_grad():
        hidden = run.model(tokens[:, :32], torch.float32, None)
        wanted = (hidden @ run.model.head.T)[0]
        theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
        torch.testing.assert_close(theirs(tokens[:, :32]).logits[0], wanted, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(logits(load(out), tokens[0, :32]), wanted, rtol=1e-3, atol=1e-3)
    said = AutoTokenizer.from_pretrained(out)
    assert said.chat_template == tiny.TEMPLATE


@PEFT
def test_lora_is_the_file_that_peft_reads(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="make frameworks installs it")
    from transformers import AutoModelForCausalLM

    out = tmp_path / "out"
    run = train(base, out, method="lora", rank=4, alpha=12.0)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(plain, out / FOLDER)
    tokens = TOKENS[:, :32]
    with torch.no_grad():
        wanted = run.model(tokens, torch.float32, None) @ run.model.head.T
        torch.testing.assert_close(theirs(tokens).logits, wanted, rtol=1e-3, atol=1e-3)
        merged = theirs.merge_and_unload()
        opened_again = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
        for name, weight in merged.named_parameters():
            torch.testing.assert_close(opened_again.get_parameter(name), weight)


@PEFT
def test_lora_has_pefts_gradients(base: Path) -> None:
    peft = pytest.importorskip("peft", reason="make frameworks installs it")
    from transformers import AutoModelForCausalLM

    ours = made(base, method="lora", rank=4, alpha=8.0)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=8.0, target_modules="all-linear")
    theirs = peft.get_peft_model(plain, config)
    layers = {name: part for name, part in ours.named_modules() if isinstance(part, Adapted)}
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, part in layers.items():
            part.lora_B.normal_(0, 0.02, generator=draw)
            other = theirs.get_submodule(f"base_model.model.{name}")
            other.lora_A["default"].weight.copy_(part.lora_A)
            other.lora_B["default"].weight.copy_(part.lora_B)
    loss_of(ours).backward()
    logits = theirs(TOKENS[:, :-1]).logits.flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, TOKENS[:, 1:].flatten()).backward()
    trained = {name for name, w in theirs.named_parameters() if w.requires_grad}
    assert len(trained) == len(ours.trained()) == 2 * len(layers)
    for name, part in layers.items():
        other = theirs.get_submodule(f"base_model.model.{name}")
        for small in ("lora_A", "lora_B"):
            gradient = getattr(other, small)["default"].weight.grad
            torch.testing.assert_close(getattr(part, small).grad, gradient, rtol=1e-3, atol=1e-6)


def test_quantized_matrices_have_the_gradients_of_what_they_stand_for(base: Path) -> None:
    ours, plain = made(base, **QUANTIZED), made(base, method="lora")
    layers = {name: part for name, part in ours.named_modules() if isinstance(part, Adapted)}
    draw = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, part in layers.items():
            held = part.base_layer
            assert isinstance(held, Quantized)
            assert held.packed.nbytes == held.weight.numel() / 2
            other = plain.get_submodule(name)
            assert isinstance(other, Adapted)
            distance = (held.weight - other.base_layer.weight).norm() / held.weight.norm()
            assert 0 < distance < 0.1
            other.base_layer.weight.copy_(held.weight)
            part.lora_B.normal_(0, 0.02, generator=draw)
            other.lora_B.copy_(part.lora_B)
    loss_of(ours).backward()
    loss_of(plain).backward()
    others = plain.trained()
    assert set(ours.trained()) == set(others)
    for name, weight in ours.trained().items():
        torch.testing.assert_close(weight.grad, others[name].grad, rtol=1e-4, atol=1e-7)
    with pytest.raises(Refused, match="only frozen matrices are quantized"):
        Settings(quantize=True)


@pytest.mark.parametrize(
    "how",
    [
        {}, {"optimizer": "lion"}, {"optimizer": "muon"}, {"method": "lora"},
        {"method": "lora", "optimizer": "muon"}, QUANTIZED,
    ],
)  # fmt: skip
def test_a_run_that_continues_is_equal_to_the_last_bit(
    how: dict[str, Any], base: Path, tmp_path: Path
) -> None:
    whole = train(base, tmp_path / "whole", **how)
    with pytest.raises(Stopped):
        train(base, tmp_path / "parts", stop=2, **how)
    again = train(base, tmp_path / "parts", **how)
    for name, weight in whole.model.trained().items():
        assert torch.equal(weight, again.model.trained()[name])
    for one, other in zip(whole.journal.rows, again.journal.rows, strict=True):
        assert (one.loss, one.norm, one.held_out) == (other.loss, other.norm, other.held_out)
    if "method" in how:
        tiny.make(base, seed=1)
        with pytest.raises(Refused, match="the model in base has changed"):
            train(base, tmp_path / "parts", **how)


def test_patience_ends_a_run_with_its_best_weights(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    # a rate at which the held-out loss rises after the first checkpoints
    how = {"rate": 0.3, "steps": 60, "checkpoint": 2, "warmup": 0.2, "keep": 1, "patience": 3}
    run = train(base, tmp_path / "out", **how)
    held = {row.step: row.held_out for row in run.journal.rows if row.held_out is not None}
    at_checkpoints = {step: loss for step, loss in held.items() if step and step % 2 == 0}
    best = min(at_checkpoints, key=lambda step: (at_checkpoints[step], step))
    assert run.step == best + 6 < 60
    file = tmp_path / "out" / "checkpoints" / f"step-{best:08}" / "state.safetensors"
    saved = load_file(file)
    for name, weight in run.model.trained().items():
        assert torch.equal(weight, saved[f"model.{name}"])
    again = train(base, tmp_path / "out", **how)
    assert again.step == run.step, "a run that patience ended does not go on"
    with pytest.raises(Refused, match="held_out above 0"):
        Settings(patience=2, held_out=0.0)


def test_what_cannot_be_trained_is_refused(base: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="Name its folder as base"):
        Settings(method="lora")
    with pytest.raises(Refused, match="reads at most 1024 tokens"):
        made(base, tokens=2048)
    with pytest.raises(ModelRefused, match=r"cannot read .*config\.json"):
        made(tmp_path / "none")
    raw = msgspec.json.decode((base / "config.json").read_bytes())
    raw["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (base / "config.json").write_bytes(msgspec.json.encode(raw))
    with pytest.raises(Refused, match="are quantized"):
        made(base)
    sizes = {"model_type": "gemma4_text", "quantization_config": None, "sliding_window": 64}
    (base / "config.json").write_bytes(msgspec.json.encode(raw | sizes))
    with pytest.raises(Refused, match="Gemma 4 are served and not trained"):
        made(base)


def test_a_tokenizer_of_another_model_is_refused(base: Path, tmp_path: Path) -> None:
    raw = msgspec.json.decode((base / "config.json").read_bytes())
    (base / "config.json").write_bytes(msgspec.json.encode(raw | {"vocab_size": 100}))
    with pytest.raises(Refused, match="but the model has only 100"):
        train(base, tmp_path / "out")


def test_runs_of_different_jobs_and_models_have_folders_of_different_names(monkeypatch) -> None:
    named = set()
    for job in ("17", "18"):
        monkeypatch.setenv("GPUDECK_ARTEFACTS", f"/jobs/{job}/artefacts")
        named |= {folder_of(Settings(model=model)).name for model in ("tiny", "124M")}
        named.add(folder_of(Settings(base="~/models/Qwen3")).name)
    assert named == {"tiny-17", "tiny-18", "124M-17", "124M-18", "Qwen3-17", "Qwen3-18"}
    monkeypatch.delenv("GPUDECK_ARTEFACTS")
    assert folder_of(Settings(model="tiny")) == Path("trained/tiny")
