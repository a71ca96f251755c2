"""Products of torch as equations between named axes."""

from __future__ import annotations

import pytest
import torch

from gpudeck.accel.inject.equation import of_matmul


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((6, 2, 3, 4), (2, 4, 5)),
        ((3, 4), (6, 2, 4, 5)),
        ((2, 3, 4), (6, 2, 4, 5)),
    ],
)
def test_the_equation_of_a_matmul_is_what_it_computes(
    a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    equation = of_matmul(len(a), len(b))
    assert equation is not None
    letters = {name: chr(ord("a") + i) for i, name in enumerate({*equation.a, *equation.b})}
    left, right, out = ("".join(letters[name] for name in part) for part in equation)
    x, y = torch.randn(a, dtype=torch.float64), torch.randn(b, dtype=torch.float64)
    torch.testing.assert_close(torch.einsum(f"{left},{right}->{out}", x, y), x @ y)


def test_vectors_have_no_equation() -> None:
    assert of_matmul(1, 2) is None
