"""Run the daemon: `python -m gpudeck.scheduler.daemon`."""

import sys

from gpudeck.language.text import phrase
from gpudeck.scheduler.background.instance import BackgroundProcess, run_single_instance
from gpudeck.scheduler.daemon.daemon import serve
from gpudeck.scheduler.protocol import paths

sys.exit(
    run_single_instance(
        BackgroundProcess(
            phrase("the daemon"), paths.daemon_lock(), paths.daemon_socket(), paths.daemon_log()
        ),
        serve,
    )
)
