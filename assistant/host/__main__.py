"""Run the assistant's process: `python -m assistant.host`."""

import sys

from assistant.one_thread import import_numpy

import_numpy()

# ruff: noqa: E402 - what is imported from here on imports NumPy
from assistant.client import socket_path
from assistant.host.server import log_file, serve
from scheduler.background.instance import BackgroundProcess, run_single_instance
from scheduler.protocol import paths

lock = paths.home() / "assistant.lock"
sys.exit(
    run_single_instance(BackgroundProcess("the assistant", lock, socket_path(), log_file()), serve)
)
