"""Serve a read-only page for browsers on this machine."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_error, print_line
from gpudeck.app.language import texts
from gpudeck.extras import missing_of
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError

PORT = 8430


def add_arguments(parser: ArgumentParser) -> None:
    """Add the port."""
    parser.add_argument(
        "--port",
        type=arguments.count,
        default=PORT,
        metavar="N",
        help=f"port to listen on; 0 chooses a free one (default: {PORT})",
    )


def run(args: Namespace) -> None:
    """Serve until interrupted."""
    if missing := missing_of("web"):
        raise UserError(missing.text)
    from gpudeck.app.web.server import WebPage
    from gpudeck.assistant.serve.server import listen, serve

    with Client() as client:  # starts the daemon, or says why it cannot
        texts.use(client.snapshot(live=False).settings.language)
    # a new one at each start: after this ends, another user can listen on the port, and a tab that
    # is still open sends its token there
    token = secrets.token_urlsafe(32)
    with listen(args.port) as sock:
        port = sock.getsockname()[1]
        print_line(f"Open this link on this machine; it holds the token: {link(port, token)}")
        print_line(
            f"From another machine or a phone, first run there: "
            f"ssh -N -L {port}:127.0.0.1:{port} USER@THIS-MACHINE"
        )
        page = WebPage(token)
        serve(page.app(), sock, print_error, page.running)


def link(port: int, token: str) -> str:
    """Return the address of the page; browsers do not send what follows the #."""
    return f"http://127.0.0.1:{port}/#{token}"
