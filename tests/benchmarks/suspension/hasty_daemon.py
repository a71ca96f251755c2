"""Run a daemon in which a turn may be shorter than ten minutes, so that a measurement sees several.

python -m tests.benchmarks.suspension.hasty_daemon
"""

import runpy

from gpudeck.scheduler.queue import preemption, suspender

SHORTEST_S = 1.0

if __name__ == "__main__":
    for module in (preemption, suspender):
        module.PAUSE_S = SHORTEST_S  # type: ignore[attr-defined]
    runpy.run_module("gpudeck.scheduler.daemon", run_name="__main__")
