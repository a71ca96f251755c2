"""Plant every defect of the table in a copy of the sources, and see that a test fails.

    python -m tests.mutants [WORD]

WORD chooses the defects whose file contains it. The exit status is 1 if a defect survives its
tests, or does not apply.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.table import DEFECTS, Defect

ROOT = Path(__file__).parents[2]
_COPIED = (
    "gpudeck",
    "accel",
    "app",
    "assistant",
    "scheduler",
    "language",
    "tests",
    "pyproject.toml",
)
_LINKED = ("assets", "docs", "tests/benchmarks/results")
"""Some tests read the rows of measurements: without them they would fail for no defect."""
_LIMIT_S = 300.0


def copy_to(folder: Path) -> Path:
    """Copy what the tests need, and return the folder."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results", "pictures")
            shutil.copytree(source, folder / name, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    for name in _LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def passes(folder: Path, tests: tuple[str, ...]) -> bool:
    """Run test files in a copy, and return True if all pass."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def plant(folder: Path, defect: Defect) -> str:
    """Plant a defect, run its tests, restore the file, and return the outcome."""
    file = folder / defect.file
    sound = file.read_text()
    if sound.count(defect.old) != 1:
        return f"DOES NOT APPLY ({sound.count(defect.old)} places)"
    file.write_text(sound.replace(defect.old, defect.new))
    try:
        return "SURVIVED" if passes(folder, defect.tests) else "caught"
    except subprocess.TimeoutExpired:
        return "caught" if defect.hangs else "DID NOT END"
    finally:
        file.write_text(sound)


def main() -> int:
    """Plant the chosen defects and return the exit status."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [d for d in DEFECTS if word in d.file]
    workers = max((os.cpu_count() or 1) // 2, 1)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for i in range(workers):
            copies.put(copy_to(Path(scratch, str(i))))

        def run(defect: Defect) -> str:
            folder = copies.get()
            try:
                return plant(folder, defect)
            finally:
                copies.put(folder)

        wrong = 0
        for defect, outcome in zip(chosen, pool.map(run, chosen), strict=True):
            wrong += outcome != "caught"
            print(f"{outcome:9} {defect.file}: {defect.what}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} planted defects were caught")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
