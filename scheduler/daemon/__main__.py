"""Run the daemon: `python -m scheduler.daemon`."""

import sys

from scheduler.background.instance import BackgroundProcess, run_single_instance
from scheduler.daemon.daemon import serve
from scheduler.protocol import paths

sys.exit(
    run_single_instance(
        BackgroundProcess(
            "the daemon", paths.daemon_lock(), paths.daemon_socket(), paths.daemon_log()
        ),
        serve,
    )
)
