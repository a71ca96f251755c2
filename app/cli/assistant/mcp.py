"""Serve the assistant's queries and orders to other programs, by the Model Context Protocol."""

from __future__ import annotations

import os
from argparse import Namespace

from gpudeck.extras import missing_of
from gpudeck.scheduler.protocol.errors import UserError


def run(args: Namespace) -> None:
    """Serve until stdin is closed.

    Raises UserError for an access token that cannot be used, and without the part `mcp`.
    """
    if missing := missing_of("mcp"):
        raise UserError(missing.text)
    from gpudeck.assistant.tool_server.server import serve  # the part brings what these import
    from gpudeck.assistant.tools.access_files import VARIABLE, token_of

    secret = os.environ.pop(VARIABLE, "")  # neither jobs nor the assistant's process inherit it
    if secret:
        token_of(secret)
    serve(secret)
