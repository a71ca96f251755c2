"""Run the assistant's process: `python -m assistant.host`."""

import sys

from assistant.client import socket_path
from assistant.host.server import log, serve
from scheduler.background.instance import Identity, serve_alone
from scheduler.protocol import paths

sys.exit(
    serve_alone(
        Identity("the assistant", paths.home() / "assistant.lock", socket_path(), log()), serve
    )
)
