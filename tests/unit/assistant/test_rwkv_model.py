"""The engine against the `rwkv` package, in every layout; states as values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rwkv_models import Tensors, oracle, random_model, to_hf, write_hf

from assistant.model import CHUNK, RWKV7
from scheduler.errors import UserError

PROMPT = [5, 17, 300, 2, 2, 9, 131, 64, 255, 318, 1, 77]
STEPS = 96


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tensors() -> Tensors:
    return random_model()


@pytest.fixture(scope="session")
def known(tensors: Tensors, tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    pth = tmp_path_factory.mktemp("oracle") / "model.pth"
    torch.save(tensors, pth)
    return oracle(pth, PROMPT, STEPS)


@pytest.fixture(scope="session")
def model(tensors: Tensors, tmp_path_factory: pytest.TempPathFactory) -> RWKV7:
    return RWKV7.load(write_hf(tmp_path_factory.mktemp("model"), to_hf(tensors)))


def save(layout: str, tensors: Tensors, folder: Path) -> Path:
    if layout == "pth":
        torch.save(tensors, folder / "m.pth")
        return folder / "m.pth"
    if layout == "pth in a folder":
        torch.save(tensors, folder / "m.pth")
        return folder
    if layout == "BlinkDL names in safetensors":
        return write_hf(folder, tensors)
    return write_hf(folder, to_hf(tensors, fused=layout == "fused x_x"), shards=3 if layout == "sharded" else 1)


LAYOUTS = ["pth", "pth in a folder", "safetensors", "sharded", "fused x_x", "BlinkDL names in safetensors"]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_logits_and_the_greedy_text_of_the_rwkv_package(layout, tensors, known, tmp_path) -> None:
    first, last, expected = known
    model = RWKV7.load(save(layout, tensors, tmp_path))
    logits, state = model.forward(PROMPT)
    assert relative(logits, first) < 1e-4
    tokens = []
    for _ in range(STEPS):
        tokens.append(int(logits.argmax()))
        logits, state = model.forward(tokens[-1:], state)
    assert tokens == expected
    assert len(set(tokens)) > 10, "a text of one repeated token would prove little"
    assert relative(logits, last) < 1e-4


def test_going_back_to_a_kept_state_gives_bit_identical_logits_and_states(model) -> None:
    _, kept = model.forward(PROMPT)
    first, first_state = model.forward([7, 8, 9], kept)
    model.forward([300, 301], kept)  # another branch in between
    again, again_state = model.forward([7, 8, 9], kept)
    assert torch.equal(first, again)
    for a, b in zip(first_state, again_state, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_state_has_the_documented_shapes(model) -> None:
    _, state = model.forward([1])
    for layer in state:
        assert layer.att_x.shape == layer.ffn_x.shape == (128,)
        assert layer.wkv.shape == (2, 64, 64)
        assert layer.wkv.dtype == torch.float32


def test_a_long_prompt_in_chunks_is_the_prompt_at_once(model) -> None:
    tokens = [(i * 37) % 320 for i in range(2 * CHUNK + 5)]
    steps = list(model.prefill(tokens))
    whole, _ = model.forward(tokens)
    assert len(steps) == 3
    assert relative(steps[-1][0], whole) < 1e-5


def test_a_half_precision_model_keeps_its_state_in_fp32(tensors) -> None:
    exact, _ = RWKV7(load_canonical(tensors)).forward(PROMPT)
    logits, state = RWKV7(load_canonical(tensors), dtype=torch.bfloat16).forward(PROMPT)
    assert state[0].wkv.dtype == torch.float32
    assert relative(logits.float(), exact) < 0.1


def load_canonical(tensors: Tensors) -> Tensors:
    return {name: t.squeeze() for name, t in tensors.items() if name not in {f"blocks.0.att.v{i}" for i in range(3)}}


@pytest.mark.parametrize("tokens", [[], [320], [-1], [1, 2, 65536]])
def test_tokens_the_model_does_not_have_are_refused(model, tokens) -> None:
    with pytest.raises(ValueError, match="token"):
        model.forward(tokens)


def test_a_missing_model_is_a_user_error(tmp_path) -> None:
    with pytest.raises(UserError, match="there is no model at"):
        RWKV7.load(tmp_path / "nowhere")
