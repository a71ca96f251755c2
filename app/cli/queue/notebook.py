"""Start Jupyter as a job, list notebooks and shells, or open a notebook again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.queue.session import add_session_arguments, run_session
from gpudeck.app.sessions.files import NOTEBOOK


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of a notebook."""
    add_session_arguments(parser, "arguments of Jupyter, after --")


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    run_session(args, NOTEBOOK)
