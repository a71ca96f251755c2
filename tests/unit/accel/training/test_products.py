"""The products of a model: merged, in FP8, and the scores that a kernel turns into gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.runtime.call import KernelCall, Pointer, compile_kernel
from gpudeck.accel.training import loss_kernels
from gpudeck.accel.training.adapters import Adapted
from gpudeck.accel.training.errors import Refused
from gpudeck.accel.training.fp8 import choose_fp8, use_fp8
from gpudeck.accel.training.loss import part_entropy
from gpudeck.accel.training.projection import Projection, project
from gpudeck.accel.training.settings import Settings
from tests.unit.accel.compiled import needs
from tests.unit.accel.training.runs import train
from tests.unit.accel.training.test_model import made

TEXT = "A queue keeps the GPU busy, and a test keeps the queue honest.\n" * 40


def turned(scores: Tensor, targets: Tensor, softcap: float) -> tuple[Tensor, Tensor]:
    loss_kernels._COLUMNS = 64  # several blocks in a row
    return loss_kernels.turn(scores, targets, 0.25, softcap), scores


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_the_kernel_turns_scores_into_their_gradient(interpreted, softcap: float) -> None:
    torch.manual_seed(0)
    scores, targets = 4 * torch.randn(7, 150), torch.randint(0, 150, (7,))
    targets[2] = -1
    scores[4, 3] = 300.0  # its power overflows without the running maximum
    loss, gradient = interpreted(turned, scores.clone(), targets, softcap)
    torch.testing.assert_close((loss, gradient), part_entropy(scores, targets, 0.25, softcap))


def test_the_kernel_of_the_loss_spills_nothing() -> None:
    arguments = {
        "scores_ptr": Pointer(torch.bfloat16), "targets_ptr": Pointer(torch.int64),
        "losses_ptr": Pointer(torch.float32), "scale_ptr": Pointer(torch.float32),
        "columns": 50304, "softcap": 1.0,
    }  # fmt: skip
    constants = {"CAPPED": True, "COLUMNS": loss_kernels._COLUMNS}
    call = KernelCall(
        loss_kernels.turn_scores, (1, 1, 1), arguments, constants, loss_kernels._OPTIONS
    )
    assert needs(compile_kernel(call, 90)).spilled == 0


@pytest.mark.parametrize("biased", [False, True])
def test_merged_products_are_the_single_ones(biased: bool) -> None:
    torch.manual_seed(0)
    layers = [Projection(16, size) for size in (8, 4, 4)]
    for layer in layers:
        layer.bias = nn.Parameter(torch.randn(layer.out_features)) if biased else None
    x = torch.randn(2, 3, 16)
    torch.testing.assert_close(project(x, *layers), tuple(layer(x) for layer in layers))


def test_a_projection_with_small_matrices_is_not_merged() -> None:
    layers: list[nn.Module] = [Projection(16, 8), Projection(16, 8)]
    adapted = Adapted(layers[0], 2, 1.0, torch.Generator())  # type: ignore[arg-type]
    nn.init.ones_(adapted.lora_B)
    x = torch.randn(3, 16)
    torch.testing.assert_close(project(x, adapted, layers[1]), (adapted(x), layers[1](x)))


def test_products_of_the_chosen_sizes_are_in_fp8() -> None:
    tokens = torch.randint(0, 257, (2, 64))
    plain, rounded = made(), made()
    assert use_fp8(rounded, ("128x256", "352x128")) == 2 * len(rounded.model.layers)
    found = []
    for model in (plain, rounded):
        hidden = model(tokens, torch.float32, None)
        loss = functional.cross_entropy(
            (hidden @ model.head.T).flatten(0, 1), tokens.roll(-1, 1).flatten()
        )
        loss.backward()
        found.append((loss.detach(), model.model.layers[1].mlp.down_proj.weight.grad))
    (loss, gradient), (other, near) = found
    assert not torch.equal(gradient, near)
    torch.testing.assert_close(other, loss, rtol=0.005, atol=0)
    assert (near - gradient).norm() < 0.1 * gradient.norm()


def test_on_a_cpu_no_product_gains_and_fp8_is_refused(tmp_path: Path) -> None:
    assert choose_fp8(made(), 64) == ()
    (tmp_path / "text.txt").write_text(TEXT)
    with pytest.raises(Refused, match="has no FP8"):
        train(tmp_path / "text.txt", tmp_path / "out", precision="fp8")
    with pytest.raises(Refused, match="not multiplied in FP8"):
        Settings(precision="fp8", method="lora", base="folder")
