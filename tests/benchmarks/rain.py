"""Compare the workload `rain` with texts that are written once.

    python -m tests.benchmarks.rain MODEL [--rounds 4] [--texts 50] [--out DIR]

`rain` rewinds a text when a statement in it does not hold. Both methods take turns and write about
the same random machines, which are new in each round; both run through the command line and the
queue. The rows go to results/rain.csv: how many texts held (the others come from the template), and
the seconds of one text, rejected attempts included.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gpudeck.scheduler.devices.cpu import cpu_name
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.support import state_folder

METHODS = ("rain", "greedy")
_GPUDECK = str(Path(sys.executable).with_name("gpudeck"))
_HELD = re.compile(r"(\d+) of (\d+) texts held")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rain")
    parser.add_argument("model", type=Path, help="the folder of an RWKV-7 model")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--texts", type=int, default=50)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    held = dict.fromkeys(METHODS, 0)
    medians: dict[str, list[float]] = {method: [] for method in METHODS}
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        settings.save(Settings(source="cpu", model_folder=str(args.model.absolute())))
        for seed in range(args.rounds):
            for method in METHODS:
                result = run(method, args.texts, seed)
                told = _HELD.search(result["reason"])
                assert told is not None and result["verdict"] == "pass", result
                held[method] += int(told[1])
                medians[method].append(result["timing"]["median"] / 1e3)
                print(
                    f"round {seed + 1}, {method}: {told[0]}, {medians[method][-1]:.2f} s a text",
                    flush=True,
                )
    count = args.rounds * args.texts
    where = context(cpu_name(), ["torch", "numba"])
    rows = [
        {
            "method": method,
            "texts": count,
            "held": held[method],
            "what": "median of a round's texts",
            "unit": "s",
            **spread(found),
            **where,
        }
        for method, found in medians.items()
    ]
    print(write("rain", rows, args.out))
    return 0


def run(method: str, texts: int, seed: int) -> dict:
    """Run one job and return its Result."""
    command = [
        _GPUDECK,
        "run",
        "rain",
        f"method={method}",
        f"texts={texts}",
        f"seed={seed}",
        "--wait",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["state"]["result"]


if __name__ == "__main__":
    sys.exit(main())
