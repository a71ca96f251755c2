"""The model and its loss against transformers and plain torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.serving.families import config_of
from gpudeck.accel.training import loss as losses
from gpudeck.accel.training.export import write_model
from gpudeck.accel.training.loss import IGNORED, cross_entropy
from gpudeck.accel.training.model import LanguageModel
from gpudeck.accel.training.optimizer import Lion, Optimizers, rate_at
from gpudeck.accel.training.settings import Settings
from gpudeck.accel.training.shapes import SHAPES, flops, new_config
from gpudeck.accel.training.start import draw
from gpudeck.accel.training.tokenizers import ByteTokenizer

RAW = new_config("tiny", 257, 64, 256)


def made(**options: bool) -> LanguageModel:
    model = LanguageModel(config_of(RAW, "tiny", ()), 64, **options)
    draw(model, 3, torch.device("cpu"))
    return model


def test_transformers_computes_the_same_scores(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = made()
    write_model(model, RAW, ByteTokenizer(), torch.float32, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = torch.tensor(AutoTokenizer.from_pretrained(tmp_path)(["Hello, world"])["input_ids"])
    assert tokens.tolist() == [list(b"Hello, world")]
    with torch.no_grad():
        hidden = model(tokens, torch.float32, None)
        torch.testing.assert_close(hidden @ model.head.T, theirs(tokens).logits)
    assert theirs.num_parameters() == sum(w.numel() for w in model.parameters())


def test_sizes_are_what_their_names_say() -> None:
    for name, wanted in (("124M", 124e6), ("350M", 350e6), ("774M", 774e6), ("1.5B", 1.5e9)):
        config = config_of(new_config(name, 50257, 1024, 50256), name, ())
        assert config.parameters == pytest.approx(wanted, rel=0.05)
        assert flops(config, 0, frozen=False) == 6 * config.parameters
        assert flops(config, 0, frozen=True) == 4 * config.parameters
    assert all(shape.width % shape.heads == 0 for shape in SHAPES.values())


def test_a_document_does_not_see_the_ones_before_it() -> None:
    model, tokens = made(), torch.randint(0, 257, (2, 64))
    documents = Ragged.of([20, 44, 64], device="cpu")
    changed = tokens.clone()
    changed[0, :20] = 7
    with torch.no_grad():
        first, other = (model(t, torch.float32, documents) for t in (tokens, changed))
        plain = model(changed, torch.float32, None)
    assert torch.equal(first[0, 20:], other[0, 20:])
    assert not torch.equal(first[0, :20], other[0, :20])
    assert not torch.allclose(plain[0, 20:], other[0, 20:])


def test_recomputing_changes_no_bit() -> None:
    tokens = torch.randint(0, 257, (2, 64))
    gradients = []
    for recompute in (False, True):
        model = made(recompute=recompute)
        model(tokens, torch.float32, None).square().sum().backward()
        gradients.append([w.grad for w in model.parameters()])
    for kept, again in zip(*gradients, strict=True):
        assert kept is not None
        assert torch.equal(kept, again)


@pytest.mark.parametrize("part", [2**28, 4 * 11 * 3, 1])
def test_the_loss_is_torchs_in_parts_of_any_size(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "_PART_BYTES", part)
    torch.manual_seed(0)
    hidden = torch.randn(10, 6, dtype=torch.float32, requires_grad=True)
    head = torch.randn(11, 6, requires_grad=True)
    targets = torch.randint(0, 11, (10,))
    targets[3] = IGNORED
    (2 * cross_entropy(hidden, head, targets, 0.25)).backward()
    got = hidden.grad, head.grad
    hidden.grad = head.grad = None
    plain = functional.cross_entropy(
        hidden @ head.T, targets, ignore_index=IGNORED, reduction="sum"
    )
    (0.5 * plain).backward()
    torch.testing.assert_close(got, (hidden.grad, head.grad))
    with torch.no_grad():
        torch.testing.assert_close(cross_entropy(hidden, head, targets, 0.5), 0.5 * plain.detach())


def test_the_rate_rises_stays_and_falls() -> None:
    cosine = Settings(steps=100, rate=1.0, warmup=0.1, final=0.1)
    rates = [rate_at(step, cosine) for step in range(100)]
    assert rates.index(max(rates)) == 10
    assert max(rates) == 1.0
    assert rates[99] == pytest.approx(0.1, abs=0.001)
    stable = [
        rate_at(s, Settings(steps=100, rate=1.0, warmup=0.1, schedule="wsd", decay=0.2, final=0.0))
        for s in range(100)
    ]
    assert set(stable[10:81]) == {1.0}
    assert stable[81:] == sorted(stable[81:], reverse=True)
    assert stable[99] == pytest.approx(0.05)


def test_only_matrices_decay() -> None:
    parts = Optimizers(made(), Settings(weight_decay=0.3)).parts
    groups = [group for part in parts for group in part.param_groups]
    assert [g["weight_decay"] for g in groups] == [0.3, 0.0]
    assert {w.dim() for w in groups[0]["params"]} == {2}
    assert {w.dim() for w in groups[1]["params"]} == {1}


def test_lion_moves_by_the_sign_of_a_mean() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    lion = Lion([{"params": [weight], "weight_decay": 0.5}], 0.1)
    weight.grad = torch.tensor([3.0, -0.1])
    lion.step()
    torch.testing.assert_close(weight.detach(), torch.tensor([0.95 - 0.1, -1.9 + 0.1]))
    torch.testing.assert_close(lion.state[weight]["mean"], torch.tensor([0.03, -0.001]))
    weight.grad = torch.tensor([-0.1, 0.0])  # 0.9 x 0.03 - 0.1 x 0.1 is still above 0
    lion.step()
    torch.testing.assert_close(
        weight.detach(), torch.tensor([0.85 * 0.95 - 0.1, -1.8 * 0.95 + 0.1])
    )


def test_muon_changes_the_matrices_of_layers_and_adamw_the_rest() -> None:
    model = made()
    optimizers = Optimizers(model, Settings(optimizer="muon"))
    *adamws, muon = optimizers.parts
    names = {weight: name for name, weight in model.named_parameters()}
    by_muon = {names[w] for group in muon.param_groups for w in group["params"]}
    by_adamw = {names[w] for part in adamws for g in part.param_groups for w in g["params"]}
    assert by_muon | by_adamw == set(names.values())
    assert not by_muon & by_adamw
    assert "model.embed_tokens.weight" in by_adamw
    assert all(".layers." in name and "norm" not in name for name in by_muon)
