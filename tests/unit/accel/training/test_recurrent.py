"""RWKV-7 is trained as the RWKV engine computes it, and the engine opens what was trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import END, VOCABULARY, Tokenizer
from gpudeck.accel.training import recurrent_weights
from gpudeck.accel.training.errors import Refused, Stopped
from gpudeck.accel.training.recurrent import RecurrentModel
from gpudeck.accel.training.shapes import new_recurrent_config
from gpudeck.accel.training.vocabulary import byte_vocabulary
from tests.unit.accel.rwkv.rwkv_models import Tensors, random_model, to_hf, write_hf
from tests.unit.accel.training.runs import train

TOKENS = torch.randint(0, 320, (2, 40), generator=torch.Generator().manual_seed(5))
NEW = {"model": "rwkv7-tiny"}


def read_model(folder: Path) -> RecurrentModel:
    model = RecurrentModel(recurrent_weights.config_in(folder))
    recurrent_weights.read(model, folder)
    return model


def scores(model: RecurrentModel, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens, torch.float32, None) @ model.head.T


@pytest.mark.parametrize("names", ["BlinkDL", "flash-linear-attention"])
def test_scores_are_those_of_the_engine(names: str, tmp_path: Path) -> None:
    tensors: Tensors = random_model(layers=2)
    write_hf(tmp_path, tensors if names == "BlinkDL" else to_hf(tensors))
    model, engine = read_model(tmp_path), RWKV7.load(tmp_path)
    found = scores(model, TOKENS)
    for row, tokens in zip(found, TOKENS.tolist(), strict=True):
        wanted, _ = engine.forward(tokens)
        torch.testing.assert_close(row[-1], wanted, rtol=2e-4, atol=2e-4)


def test_a_document_knows_nothing_of_the_ones_before_it(tmp_path: Path) -> None:
    model = read_model(write_hf(tmp_path, random_model(layers=2)))
    documents = Ragged.of([13, 27, 40, 0], device="cpu")
    with torch.no_grad():
        together = model(TOKENS, torch.float32, documents)
        alone = model(TOKENS[:1, 13:], torch.float32, None)
    torch.testing.assert_close(together[:1, 13:], alone, rtol=1e-4, atol=1e-4)


def test_all_weights_have_gradients_also_when_recomputed(tmp_path: Path) -> None:
    write_hf(tmp_path, random_model(layers=2))
    gradients = []
    for recompute in (False, True):
        model = read_model(tmp_path)
        model.recompute = recompute
        model(TOKENS, torch.float32, None).square().mean().backward()
        gradients.append({name: w.grad for name, w in model.named_parameters()})
    for name, gradient in gradients[0].items():
        if name != "lm_head.weight":
            assert gradient is not None and gradient.abs().max() > 0, name
            assert torch.equal(gradient, gradients[1][name]), name


def test_a_new_model_begins_as_almost_nothing() -> None:
    model = RecurrentModel(new_recurrent_config("rwkv7-tiny", 257))
    recurrent_weights.draw(model, 3)
    assert all(w.isfinite().all() for w in model.parameters())
    loss = torch.nn.functional.cross_entropy(
        scores(model, TOKENS % 257)[:, :-1].flatten(0, 1), (TOKENS % 257)[:, 1:].flatten()
    )
    assert loss == pytest.approx(torch.tensor(float(model.config.vocabulary)).log(), abs=0.3)
    kept = model.matrices()
    assert not any(".lora." in name or "norm" in name or ".x_" in name for name in kept)
    assert {"model.embeddings.weight", "lm_head.weight"} < set(kept)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUDECK_HOME", str(tmp_path / "home"))
    lines = (f'{{"text": "{n} plus {n + 1} is {2 * n + 1}."}}\n' for n in range(150))
    (tmp_path / "data.jsonl").write_text("".join(lines))
    return tmp_path / "data.jsonl"


def test_a_new_model_learns_continues_and_opens_in_the_engine(data: Path, tmp_path: Path) -> None:
    whole = train(data, tmp_path / "whole", **NEW, optimizer="muon")
    losses = [row.loss for row in whole.journal.rows if row.loss is not None]
    assert losses[-1] < losses[0] - 0.5
    with pytest.raises(Stopped):
        train(data, tmp_path / "parts", stop=2, **NEW, optimizer="muon")
    again = train(data, tmp_path / "parts", **NEW, optimizer="muon")
    for name, weight in whole.model.trained().items():
        assert torch.equal(weight, again.model.trained()[name])
    engine, words = RWKV7.load(tmp_path / "whole"), Tokenizer.load(tmp_path / "whole")
    tokens = words.encode("7 plus 8 is")
    assert words.decode(tokens) == b"7 plus 8 is"
    wanted = scores(whole.model, torch.tensor([tokens]))[0, -1]  # type: ignore[arg-type]
    torch.testing.assert_close(engine.forward(tokens)[0], wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", ["full", "lora", "state"])
def test_a_folder_is_trained_further(method: str, data: Path, tmp_path: Path) -> None:
    base = write_hf(tmp_path / "base", random_model(layers=2, vocabulary=320))
    byte_vocabulary().write(base)
    out = tmp_path / "out"
    rate = 1.0 if method == "state" else 1e-2
    run = train(data, out, base=str(base), method=method, rank=4, rate=rate)
    losses = [row.loss for row in run.journal.rows if row.loss is not None]
    assert losses[-1] < losses[0]
    tokens = TOKENS[0, :20].tolist()
    wanted = scores(run.model, torch.tensor([tokens]))[0, -1]  # type: ignore[arg-type]
    torch.testing.assert_close(RWKV7.load(out).forward(tokens)[0], wanted, rtol=1e-3, atol=1e-3)
    assert (out / VOCABULARY).read_bytes() == (base / VOCABULARY).read_bytes()
    assert (out / "adapter").is_dir() == (method == "lora")
    kept = {"full": "", "lora": "lora_", "state": "time_state"}[method]
    assert all(kept in name for name in run.model.trained())
    if method == "state":
        first = run.model.get_parameter("model.layers.0.attn.time_state")
        named = load_file(out / "states" / "states.safetensors")["blocks.0.att.time_state"]
        assert torch.equal(named, first) and first.abs().max() > 0
        frozen, tuned = (load_file(f / "model.safetensors") for f in (base, out))
        assert torch.equal(frozen["head.weight"], tuned["lm_head.weight"])
        # what was tuned is trained further, with all weights or alone
        more = train(data, tmp_path / "more", base=str(out), method="state", steps=1, rate=1e-6)
        again = more.model.get_parameter("model.layers.0.attn.time_state")
        torch.testing.assert_close(again, first, rtol=0, atol=1e-5)


def test_each_document_begins_in_the_tuned_state(tmp_path: Path) -> None:
    write_hf(tmp_path, random_model(layers=2))
    config = recurrent_weights.config_in(tmp_path)._replace(tuned=True)
    model = RecurrentModel(config)
    recurrent_weights.read(model, tmp_path)
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.attn.time_state, generator=torch.Generator().manual_seed(1))
    documents = Ragged.of([13, 27, 40, 0], device="cpu")
    with torch.no_grad():
        together = model(TOKENS, torch.float32, documents)
        alone = model(TOKENS[:1, 13:], torch.float32, None)
    torch.testing.assert_close(together[:1, 13:], alone, rtol=1e-4, atol=1e-4)
    without = read_model(tmp_path)
    assert not torch.allclose(scores(without, TOKENS), scores(model, TOKENS), atol=1e-2)


def test_bytes_are_tokens_from_one_on() -> None:
    tokenizer = byte_vocabulary()
    assert tokenizer.encode(["aé"])[0].tolist() == [98, 0xC3 + 1, 0xA9 + 1]
    assert tokenizer.vocabulary == 257
    assert tokenizer.begin == tokenizer.end == END


def test_what_cannot_be_trained_is_refused(data: Path, tmp_path: Path) -> None:
    tensors = to_hf(random_model(layers=2))
    wider = torch.zeros(24, 128)
    tensors["model.layers.0.attn.w_lora.lora.0.weight"] = wider
    tensors["model.layers.0.attn.w_lora.lora.2.weight"] = wider.T.contiguous()
    base = write_hf(tmp_path / "uneven", tensors)
    byte_vocabulary().write(base)
    with pytest.raises(Refused, match="different ranks"):
        train(data, tmp_path / "out", base=str(base))
    with pytest.raises(Refused, match="the vocabulary cannot be used"):
        train(data, tmp_path / "out", **NEW, tokenizer=str(tmp_path / "none"))
    save_file({"x": torch.zeros(2)}, base / "model.safetensors")
    with pytest.raises(Refused, match="the model cannot be trained"):
        train(data, tmp_path / "out", base=str(base))
