"""Fixtures of the tests that run on a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def context() -> None:
    """Make the CUDA context current in this thread and in autograd's.

    At the first product of a thread that has none, torch warns once and makes it current; here
    warnings are errors, so the first test of every process would fail.
    """
    if torch.cuda.is_available():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.ones(16, 16, device="cuda", requires_grad=True)
            (x @ x).sum().backward()
            torch.cuda.synchronize()
