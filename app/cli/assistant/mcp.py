"""Serve the assistant's queries and orders to other programs, by the Model Context Protocol."""

from __future__ import annotations

import os
from argparse import Namespace

from gpudeck.assistant.tools.access_files import VARIABLE, token_of


def run(args: Namespace) -> None:
    """Serve until stdin is closed. Raises UserError for an access token that cannot be used."""
    secret = os.environ.pop(VARIABLE, "")  # neither jobs nor the assistant's process inherit it
    if secret:
        token_of(secret)
    from gpudeck.assistant.tool_server.server import serve  # the package `mcp` may be missing

    serve(secret)
