"""The planted cheats and their honest twins, judged on this device.

    python -m tests.benchmarks.search_cheats --part 0 --of 6 --minutes 2 > cheats.csv

The cases are those of `tests/unit/accel/search/cheats.py`, which are written for a CPU. On a GPU
they create tensors there, and what they compute with numpy is copied there and back. Several parts
can run at the same time, as only refusals count. A row is right if a cheat was refused by one of
the measures that are meant for it, or a twin was accepted. What an earlier file of rows (`--known`)
has as right is not judged again.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import tempfile
import time
from pathlib import Path

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.judge import judge, nursery
from gpudeck.accel.search.verdict import Source
from tests.unit.accel.search.cheats import CASES, Case, small

EFFORT = Effort(seconds=1.0, rounds=26, trials=12)
_ON_GPU = """
torch.set_default_device("cuda")
def _on_gpu(array):
    return torch.from_numpy(array).cuda()
"""
_SHARED = 1 << 24
"""Bytes that inputs and results of each case fit into."""


def for_gpu(text: str) -> str:
    """Return a case's file as it is for tensors on a GPU."""
    head, rest = text.split("\n\n", 1)
    rest = re.sub(r"(\w+)\.numpy\(\)\[:\] = (\w+)", r"\1.copy_(_on_gpu(\2))", rest)
    rest = rest.replace("torch.from_numpy", "_on_gpu").replace(".numpy()", ".cpu().numpy()")
    rest = rest.replace("x.data_ptr(), 4", "x.cpu().data_ptr(), 4")
    return head + "\n" + _ON_GPU + rest


def left(known: Path | None) -> list[tuple[Case, str]]:
    """Return what is to be judged: the twins, which take longer, and then the cheats.

    Args:
        known: has rows of an earlier run; those that are right are left out.
    """
    right = set()
    if known is not None:
        with known.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["verdict"] == "right"]
        right = {(row["case"], row["kind"]) for row in rows}
    both = [(case, kind) for kind in ("twin", "cheat") for case in CASES]
    return [(case, kind) for case, kind in both if (case.name, kind) not in right]


def row_of(case: Case, kind: str, crew: Crew, file: Path) -> tuple[object, ...]:
    """Judge a case's cheat or its twin."""
    begun = time.monotonic()
    text = case.cheat if kind == "cheat" else case.twin
    file.write_text(for_gpu(text) if crew.device.type == "cuda" else text)
    task = small(case.task, case.own)
    found = judge(Source(str(file)), task, compiled=(), effort=EFFORT, crew=crew)
    kinds = [refusal.kind for refusal in found.refusals]
    right = bool(case.kinds & {*kinds}) if kind == "cheat" else found.accepted
    where = "; ".join(str(refusal.text) for refusal in found.refusals)[:200]
    return (
        case.name, case.task, kind, "right" if right else "WRONG", " ".join(kinds), where,
        f"{time.monotonic() - begun:.1f}",
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_cheats")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--known", type=Path, help="rows of an earlier run")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    write = csv.writer(sys.stdout)
    if args.part == 0:
        write.writerow(("case", "task", "kind", "verdict", "refused by", "text", "seconds"))
    device = find_device().torch_device
    with tempfile.TemporaryDirectory() as folder, Crew(nursery(), device) as crew:
        crew.arena(_SHARED)
        for case, kind in left(args.known)[args.part :: args.of]:
            if time.monotonic() > end:
                break
            try:
                row = row_of(case, kind, crew, Path(folder) / "candidate.py")
            except Exception as e:  # noqa: BLE001 - a case that fails must not end the others
                why = f"{type(e).__name__}: {e}"[:200]
                row = (case.name, case.task, kind, "WRONG", "", why)
            write.writerow(row)
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
