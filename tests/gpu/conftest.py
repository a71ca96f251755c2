"""Fixtures of the tests that run on a GPU."""

from __future__ import annotations

import warnings

import pytest
import torch


@pytest.fixture
def untouched() -> None:
    """Skip a test that needs a process that has not computed on the GPU."""
    if torch.cuda.is_initialized():
        pytest.skip("this process has used the GPU already: run this test by itself")


@pytest.fixture(autouse=True)
def context(request: pytest.FixtureRequest) -> None:
    """Make the CUDA context current in this thread and in autograd's.

    At the first product of a thread that has none, torch warns once and makes it current; here
    warnings are errors, so the first test of every process would fail.
    """
    if "untouched" in request.fixturenames or torch.cuda.is_initialized():
        return
    if torch.cuda.is_available():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.ones(16, 16, device="cuda", requires_grad=True)
            (x @ x).sum().backward()
            torch.cuda.synchronize()
