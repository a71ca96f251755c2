"""Serve the assistant's queries and orders to other programs, by the Model Context Protocol."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """Add what a program may do without asking."""
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="VERB",
        help="carry out orders of this verb, such as submit, without asking a person; for programs "
        "that work while nobody is there. Can be given several times",
    )


def run(args: Namespace) -> int:
    """Serve until stdin is closed."""
    from gpudeck.assistant.tool_server.server import serve  # the package `mcp` may be missing

    serve(frozenset(args.allow))
    return 0
