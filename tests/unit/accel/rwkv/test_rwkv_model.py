"""Compare the engine with the `rwkv` package in every layout, and treat states as values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpudeck.accel.rwkv.errors import ModelError
from gpudeck.accel.rwkv.model import RWKV7, State
from gpudeck.accel.rwkv.storage import Matrix
from tests.unit.accel.rwkv.rwkv_models import Tensors, oracle, random_model, to_hf, write_hf

pytestmark = pytest.mark.xdist_group(
    "rwkv"
)  # Numba compiles at the first use; the tests of a group share the result.

PROMPT = [5, 17, 300, 2, 2, 9, 131, 64, 255, 318, 1, 77]
STEPS = 128


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tensors() -> Tensors:
    return random_model()


@pytest.fixture(scope="session")
def known(
    tensors: Tensors, tmp_path_factory: pytest.TempPathFactory
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
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
    return write_hf(
        folder, to_hf(tensors, fused=layout == "fused x_x"), shards=3 if layout == "sharded" else 1
    )


LAYOUTS = [
    "pth",
    "pth in a folder",
    "safetensors",
    "sharded",
    "fused x_x",
    "BlinkDL names in safetensors",
]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_logits_and_text_of_the_rwkv_package(
    layout, tensors, known, tmp_path
) -> None:
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


def test_returning_to_a_kept_state_gives_bit_identical_results(model) -> None:
    _, kept = model.forward(PROMPT)
    first, first_state = model.forward([7, 8, 9], kept)
    model.forward([300, 301], kept)  # another branch in between
    again, again_state = model.forward([7, 8, 9], kept)
    assert torch.equal(first, again)
    assert same(first_state, again_state)


def same(a: State, b: State) -> bool:
    return torch.equal(a.shift, b.shift) and torch.equal(a.wkv, b.wkv)


def test_the_state_has_the_documented_shapes(model) -> None:
    _, state = model.forward([1])
    assert state.shift.shape == (3, 1, 2, 128)
    assert state.wkv.shape == (3, 1, 2, 64, 64)
    assert state.wkv.dtype == torch.float32


def test_a_prompt_in_chunks_equals_the_prompt_token_by_token(model) -> None:
    tokens = [(i * 37) % 320 for i in range(2 * model.chunk + 5)]
    looks: list[int] = []
    logits, state = model.forward(tokens, None, lambda: looks.append(1))
    state_by_one = None
    for token in tokens:
        logits_by_one, state_by_one = model.forward([token], state_by_one)
    assert relative(logits, logits_by_one) < 1e-5
    assert relative(state.wkv, state_by_one.wkv) < 1e-5
    assert len(looks) == 3 * 3, "it may be stopped after each layer of each chunk"


def test_the_callback_of_forward_may_stop_it(model) -> None:
    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        model.forward(PROMPT, None, stop)


@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_batch_equals_its_sequences_one_by_one(tensors, batch, dtype) -> None:
    model = RWKV7(load_canonical(tensors), dtype=dtype)
    states = [model.forward(PROMPT[: i + 1])[1] for i in range(batch)]
    logits, after = model.step(list(range(batch)), State.join(states))
    for i, state in enumerate(states):
        alone, alone_after = model.forward([i], state)
        assert relative(logits[i], alone) < 1e-5
        assert relative(after.pick([i]).wkv, alone_after.wkv) < 1e-5
    with pytest.raises(ValueError, match="as many tokens"):
        model.step([1] * (batch + 1), State.join(states))


def test_int8_weights_give_close_results_in_a_quarter_of_the_memory(tensors) -> None:
    exact, _ = RWKV7(load_canonical(tensors)).forward(PROMPT)
    small = RWKV7(load_canonical(tensors), dtype=torch.int8)
    logits, _ = small.forward(PROMPT)
    assert relative(logits, exact) < 0.05
    state = None
    for token in PROMPT:
        by_one, state = small.forward([token], state)
    assert relative(by_one, logits) < 1e-5
    matrices = sum(
        t.numel()
        for name, t in tensors.items()
        if t.dim() == 2 and name != "emb.weight" and not name[:-1].endswith(tuple("wavg"))
    )
    assert small.nbytes < RWKV7(load_canonical(tensors)).nbytes - 2.9 * matrices


def test_the_int8_error_of_a_row_is_at_most_half_a_step() -> None:
    weight = torch.randn(50, 70, generator=torch.Generator().manual_seed(0)) * torch.logspace(
        -6, 3, 50
    ).unsqueeze(1)
    weight[3] = 0
    rounded = Matrix.int8(weight)
    step = weight.abs().amax(dim=1) / 127
    assert ((rounded.dense(torch.float32) - weight).abs() <= 0.5001 * step.unsqueeze(1)).all()


def test_damaged_weights_show_in_the_logits(tensors) -> None:
    damaged = load_canonical(tensors)
    damaged["blocks.1.att.output.weight"] = (
        damaged["blocks.1.att.output.weight"].clone().fill_(torch.nan)
    )
    assert not RWKV7(damaged).forward([1])[0].isfinite().any()


def test_a_half_precision_model_keeps_its_state_in_fp32(tensors) -> None:
    exact, _ = RWKV7(load_canonical(tensors)).forward(PROMPT)
    logits, state = RWKV7(load_canonical(tensors), dtype=torch.bfloat16).forward(PROMPT)
    assert state.wkv.dtype == torch.float32
    assert relative(logits.float(), exact) < 0.1


def load_canonical(tensors: Tensors) -> Tensors:
    return {
        name: t.squeeze()
        for name, t in tensors.items()
        if name not in {f"blocks.0.att.v{i}" for i in range(3)}
    }


@pytest.mark.parametrize("tokens", [[], [320], [-1], [1, 2, 65536]])
def test_tokens_the_model_does_not_have_are_refused(model, tokens) -> None:
    with pytest.raises(ValueError, match="token"):
        model.forward(tokens)


def test_a_missing_model_is_a_model_error(tmp_path) -> None:
    with pytest.raises(ModelError, match="there is no model at"):
        RWKV7.load(tmp_path / "nowhere")
