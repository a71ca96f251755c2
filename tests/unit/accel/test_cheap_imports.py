"""Forms, command lines and the daemon import these: they must stay free of torch."""

import importlib
import subprocess
import sys

import pytest

from gpudeck.accel.workloads.catalog import WORKLOADS

ACCEL = "gpudeck.accel"


def fresh(code):
    return subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.strip()


def test_importing_accel_does_not_import_torch():
    workloads = ", ".join(w.module for w in WORKLOADS)
    parts = ", ".join(f"{ACCEL}.{part}" for part in ("attention", "result", "runtime"))
    code = f"import sys, {parts}, {workloads}"
    assert (
        fresh(f"{code}; print(sorted({{'torch', 'triton', 'numpy'}} & set(sys.modules)))") == "[]"
    )


def test_the_operation_comes_with_its_first_use_and_without_the_compiler():
    code = "import sys; from gpudeck import accel; before = 'torch' in sys.modules"
    found = "before, 'torch' in sys.modules, 'torch._dynamo' in sys.modules, f.__module__"
    assert (
        fresh(f"{code}; f = accel.attention; print({found})")
        == "False True False gpudeck.accel.attention.api"
    )


def test_what_is_not_there_is_an_attribute_error():
    for module in (
        importlib.import_module("gpudeck.accel"),
        importlib.import_module("gpudeck.accel.attention"),
    ):
        with pytest.raises(AttributeError, match="has no attribute 'attenton'"):
            module.attenton  # noqa: B018
