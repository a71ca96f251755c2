"""Run the daemon: `python -m scheduler.daemon`."""

import sys

from scheduler.background.instance import Identity, serve_alone
from scheduler.daemon.daemon import serve
from scheduler.protocol import paths

sys.exit(
    serve_alone(
        Identity("the daemon", paths.daemon_lock(), paths.daemon_socket(), paths.daemon_log()),
        serve,
    )
)
