"""Compare what the dashboard showed during tours with what their jobs counted, as CSV.

python -m tests.benchmarks.tour_live TOUR/results.json ...
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

from tests.benchmarks.rows import write


def row(file: Path) -> dict[str, object]:
    """Return the row of one tour."""
    tour = json.loads(file.read_text())
    result, live = tour["job"]["state"]["result"], tour["live"]
    return {
        "date": datetime.datetime.fromtimestamp(tour["started"], datetime.UTC).strftime(
            "%Y-%m-%d %H:%M"
        ),
        "device": result["device"],
        "backend": result["backend"],
        "seq": result["params"]["seq"],
        "dashboard_tflops": round(live["shown_tflops"], 2),
        "counted_tflops": round(live["counted_tflops"], 2),
        "ratio": round(live["shown_tflops"] / live["counted_tflops"], 4),
        "counters_tflops": round(live["counters_tflops"], 2) if live["counters_tflops"] else "",
        "counters_ratio": round(live["ratio"], 4) if live["ratio"] else "",
        "readings": live["readings"],
        "versions": " ".join(f"{name}={version}" for name, version in result["versions"].items()),
    }


if __name__ == "__main__":
    print(write("tour_live", [row(Path(name)) for name in sys.argv[1:]]))
