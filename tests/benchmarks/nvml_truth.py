"""Compare every value of the monitor with what nvidia-smi reports in the same run.

    python -m tests.benchmarks.nvml_truth [--out DIR]

The device is idle first and then runs a matrix product. A varying value is compared with the range
of our readings of the same time: it differs if it is outside by more than nvidia-smi's rounding and
2 % of our largest value. Values that only one of the two reports are listed, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from gpudeck.scheduler.protocol.devices import NA, Reading
from gpudeck.scheduler.protocol.fields import FIELDS
from tests.benchmarks import nvidia_smi
from tests.benchmarks.gpu_probe import Probe, need_gpu, torch_on_gpu
from tests.benchmarks.rows import RESULTS, context, write

SECONDS, NOISE = 6, 0.02
_LOAD = """
import torch
a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
print("up", flush=True)
while True:
    for _ in range(50):
        a @ b
    torch.cuda.synchronize()
"""
_ROUNDING = {"B": 2.0**20, "B/s": 1e6, "W": 1.0, "%": 1.0, "°C": 1.0, "MHz": 1.0}
"""The rounding of what nvidia-smi prints, by our unit."""


def compare(
    phase: str, way: str, field: str, theirs: list[float], ours: list[Reading]
) -> dict[str, object]:
    """Return one row.

    Args:
        theirs: The values of nvidia-smi; empty if it reports N/A.
    """
    values = [r.values[field] for r in ours if field in r.values]
    row: dict[str, object] = {
        "phase": phase,
        "way": way,
        "field": field,
        "unit": FIELDS[field].unit,
    }
    row |= {"ours_low": min(values, default=""), "ours_high": max(values, default="")}
    row |= {"theirs_low": min(theirs, default=""), "theirs_high": max(theirs, default="")}
    if not values or not theirs:
        verdict = (
            "both N/A" if not values and not theirs else "only theirs" if theirs else "only ours"
        )
        why = ours[-1].get(field) if not values and ours else ""
        return row | {
            "outside": "",
            "verdict": verdict,
            "reason": why.reason if isinstance(why, NA) else "",
        }
    mean = sum(theirs) / len(theirs)
    outside = max(min(values) - mean, mean - max(values), 0.0)
    allowed = _ROUNDING.get(FIELDS[field].unit, 0.0) + (
        NOISE * max(map(abs, values)) if FIELDS[field].pace in ("fast", "slow") else 0.0
    )
    verdict = (
        "same" if outside == 0 else "within rounding and noise" if outside <= allowed else "DIFFERS"
    )
    return row | {"outside": round(outside, 4), "verdict": verdict, "reason": ""}


def phase(name: str, probe: Probe) -> list[dict[str, object]]:
    """Run all three kinds of nvidia-smi, one after another, each beside our readings of the same
    time.
    """
    rows: list[dict[str, object]] = []
    start = time.time()
    asked = [nvidia_smi.query() for _ in range(3)]
    time.sleep(1.2)
    ours = probe.between(start - 1.2, time.time())
    for field in nvidia_smi.PLACES:
        if any(field in missing for _, missing in asked):
            rows.append(compare(name, "-q -x (not in its XML)", field, [], ours))
        else:
            rows.append(
                compare(
                    name,
                    "-q -x",
                    field,
                    [v for found, _ in asked if (v := found[field]) is not None],
                    ours,
                )
            )
    for way, ask in (("dmon", nvidia_smi.dmon), ("dmon --gpm-metrics", nvidia_smi.gpm)):
        start = time.time()
        found = ask(SECONDS)
        time.sleep(0.6)
        ours = probe.between(start, time.time())
        rows += [
            compare(name, way, field, theirs[1:], ours) for field, theirs in found.items()
        ]  # the first value covers an earlier span
    compared = {row["field"] for row in rows}
    last = probe.readings[-1]
    rows += [
        compare(name, "nowhere in nvidia-smi", field, [], [last])
        for field in sorted({*last.values, *last.absent} - compared)
    ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    need_gpu()
    name = torch_on_gpu().cuda.get_device_name()
    probe = Probe()
    time.sleep(12)  # long enough to read the slow fields twice
    where = context(name, ["nvidia-ml-py"])
    rows = phase("at rest", probe)
    write("nvml_truth", [row | where for row in rows], out)
    with subprocess.Popen([sys.executable, "-c", _LOAD], stdout=subprocess.PIPE) as load:
        assert load.stdout is not None
        load.stdout.readline()
        time.sleep(8)
        rows += phase("matrix product", probe)
        load.kill()
    probe.close()
    for row in rows:
        if row["verdict"] not in ("same", "within rounding and noise", "both N/A"):
            span = f"ours {row['ours_low']}..{row['ours_high']}, "
            span += f"theirs {row['theirs_low']}..{row['theirs_high']}"
            print(
                f"{row['phase']:15} {row['way']:22} {row['field']:22} {row['verdict']:12} "
                f"{span} {row['reason']}"
            )
    counts = {
        verdict: sum(r["verdict"] == verdict for r in rows)
        for verdict in sorted({str(r["verdict"]) for r in rows})
    }
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    print(write("nvml_truth", [row | where for row in rows], out))


if __name__ == "__main__":
    main()
