"""Run the assistant's process: `python -m gpudeck.assistant.host`."""

import sys

from gpudeck.assistant.one_thread import import_numpy
from gpudeck.language.text import phrase

import_numpy()

# ruff: noqa: E402 - what is imported from here on imports NumPy
from gpudeck.assistant.client import socket_path
from gpudeck.assistant.host.server import log_file, serve
from gpudeck.scheduler.background.instance import BackgroundProcess, run_single_instance
from gpudeck.scheduler.protocol import paths

lock = paths.home() / "assistant.lock"
sys.exit(
    run_single_instance(
        BackgroundProcess(phrase("the assistant"), lock, socket_path(), log_file()), serve
    )
)
