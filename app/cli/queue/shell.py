"""Start a shell as a job, list notebooks and shells, or open a shell again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.queue.session import add_session_arguments, run_session
from gpudeck.app.sessions.files import TERMINAL


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of a shell."""
    add_session_arguments(parser, "a command to run in place of your shell, after --")


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    run_session(args, TERMINAL)
