"""Every benchmark can be imported, also those that need a GPU to run."""

import pkgutil
import subprocess
import sys

import pytest

from tests import benchmarks

_IMPORT_ALL = """
import importlib, sys, traceback
failed = 0
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as e:
        if getattr(e, "name", "") == "helion":  # a peer that is not installed
            continue
        traceback.print_exc()
        failed += 1
sys.exit(failed)
"""


@pytest.mark.slow
def test_every_benchmark_can_be_imported():
    names = [
        module.name
        for module in pkgutil.walk_packages(benchmarks.__path__, "tests.benchmarks.")
        if not module.name.endswith("__main__")
    ]
    assert "tests.benchmarks.attention_tuning" in names
    command = [sys.executable, "-c", _IMPORT_ALL, *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
