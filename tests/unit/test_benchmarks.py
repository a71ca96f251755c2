"""Every benchmark can be imported, also those that need a GPU to run."""

import csv
import pkgutil
import shutil
import subprocess
import sys
from collections import Counter

import pytest

from tests import benchmarks
from tests.benchmarks import queue_losses
from tests.benchmarks.queue_tools import GpuDeck
from tests.benchmarks.rows import RESULTS

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


def test_rows_of_queues_that_are_not_installed_stay(tmp_path, monkeypatch, capsys):
    shutil.copy(RESULTS / "queue_losses.csv", tmp_path)
    counted = Counter(acknowledged=7, lost=0)
    monkeypatch.setattr(queue_losses, "measure", lambda *_: counted)
    monkeypatch.setattr(
        queue_losses, "why_missing", lambda kind: "" if kind is GpuDeck else "not installed"
    )
    monkeypatch.setattr(sys, "argv", ["queue_losses", "--rounds", "1", "--out", str(tmp_path)])
    assert queue_losses.main() == 0
    assert capsys.readouterr().out.count("LEFT OUT") == 3
    before, after = (
        {row["tool"]: row["acknowledged"] for row in csv.DictReader(file.read_text().splitlines())}
        for file in (RESULTS / "queue_losses.csv", tmp_path / "queue_losses.csv")
    )
    assert after == {**before, GpuDeck.name: "7"} and len(after) == 4
