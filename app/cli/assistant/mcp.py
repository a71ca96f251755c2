"""Serve the assistant's queries to other programs, by the Model Context Protocol."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: a program that starts the server speaks to it over stdin and stdout."""


def run(args: Namespace) -> int:
    """Serve until stdin is closed."""
    from gpudeck.assistant.tool_server.server import server  # the package `mcp` may be missing

    server().run("stdio")
    return 0
