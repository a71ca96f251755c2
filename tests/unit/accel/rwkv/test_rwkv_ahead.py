"""Code for this CPU is compiled ahead, by one process at a time, and kept where it can
be written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from numba import typeof

from gpudeck.accel.rwkv import ahead
from gpudeck.accel.rwkv.model import RWKV7
from tests.unit.accel.rwkv.rwkv_models import random_model

pytestmark = pytest.mark.xdist_group("rwkv")
REPOSITORY = Path(__file__).parents[4]


@pytest.mark.slow
def test_the_kernels_compiled_ahead_are_those_that_a_model_calls() -> None:
    RWKV7(random_model()).forward([1, 2, 3])
    RWKV7(random_model()).forward([1])
    for kernel, arguments in ahead.example_calls():
        assert tuple(map(typeof, arguments)) in kernel.overloads


def test_torch_computes_until_code_is_compiled_with_equal_results_within_rounding() -> None:
    compiled, model = RWKV7(random_model()), RWKV7(random_model(), compiled=False)
    (expected, state), (logits, before) = compiled.forward([1, 2, 3]), model.forward([1, 2, 3])
    for token in (7, 8, 9):
        expected, state = compiled.forward([token], state)
        logits, before = model.forward([token], before)
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    model.use_compiled()
    after, _ = model.forward([5], before)
    torch.testing.assert_close(after, compiled.forward([5], state)[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(after, compiled.forward([5], before)[0]), "it is the compiled code"


@pytest.mark.slow
def test_compiled_code_is_kept_in_the_state_folder_if_no_cache_is_writable(tmp_path) -> None:
    ignored, accel = shutil.ignore_patterns("__pycache__"), tmp_path / "gpudeck" / "accel"
    shutil.copytree(REPOSITORY / "gpudeck", tmp_path / "gpudeck", ignore=ignored)
    shutil.copytree(REPOSITORY / "accel", accel, ignore=ignored)
    (accel / "rwkv" / "__pycache__").write_text(
        "a file: nobody, not even root, makes a folder of it"
    )
    blocked = {
        name: str(accel / "result.py") for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    }
    run = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "from gpudeck.accel.rwkv import ahead; print(ahead.folder(), ahead.ready())",
        ],
        env={
            **os.environ,
            **blocked,
            "PYTHONPATH": str(tmp_path),
            "GPUDECK_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        check=True,
        text=True,
    )
    folder, ready = run.stdout.split()
    assert folder.startswith(str(tmp_path / "home" / "compiled"))
    assert ready == "False"


@pytest.mark.slow
def test_of_two_processes_only_one_compiles(tmp_path) -> None:
    code = (
        "from gpudeck.accel.rwkv import ahead; ahead.prepare(); assert ahead.ready(); "
        "print(sum(sum(kernel.stats.cache_misses.values()) for kernel, _ in ahead.example_calls()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    compiled = [int(process.communicate(timeout=300)[0]) for process in both]
    assert sorted(compiled) == [0, 2]
