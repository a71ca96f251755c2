"""Serve the assistant's queries to other programs, by the Model Context Protocol."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.scheduler.protocol.errors import UserError


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: a program that starts the server speaks to it over stdin and stdout."""


def run(args: Namespace) -> int:
    """Serve until stdin is closed. Raises UserError without the package `mcp`."""
    try:
        from gpudeck.assistant.tool_server.server import server
    except ModuleNotFoundError as e:
        if e.name is None or e.name.partition(".")[0] != "mcp":
            raise
        raise UserError(
            "the Model Context Protocol needs a package more: pip install 'gpudeck[mcp]'"
        ) from e
    server().run("stdio")
    return 0
