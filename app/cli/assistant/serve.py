"""Offer the assistant's model through OpenAI's API, to this user's editors and scripts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from app.cli import arguments
from app.cli.assistant.events import device
from app.cli.output import print_error, print_line
from app.cli.token import read_token
from assistant.serve.endpoint import OpenAIEndpoint, configured_model
from assistant.serve.server import listen, serve
from scheduler.protocol import paths


def add_arguments(parser: ArgumentParser) -> None:
    """Add the port, the device, and the token of the endpoint."""
    parser.add_argument(
        "--port",
        type=arguments.count,
        default=8420,
        metavar="N",
        help="port to listen on; 0 chooses a free one (default: 8420)",
    )
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="do not use a GPU; a request can ask for this with the header X-GPUDeck-Device: cpu",
    )
    parser.add_argument(
        "--patience",
        type=arguments.duration,
        default=60.0,
        metavar="TIME",
        help="wait this long for a GPU that is in use (default: 60s)",
    )
    parser.add_argument(
        "--new-token",
        action="store_true",
        help="create a new token; programs that use the old one are then refused",
    )


def run(args: Namespace) -> int:
    """Serve until interrupted."""
    file = token_file()
    if args.new_token:
        file.unlink(missing_ok=True)
    token, created = read_token(file)
    with listen(args.port) as sock:
        print_line(f"OpenAI-compatible endpoint at http://127.0.0.1:{sock.getsockname()[1]}/v1")
        if created:
            print_line(f"token: {token} (stored in {file}; not shown again)")
        else:
            print_line(f"The token is in {file}. To create a new one: --new-token")
        _print_model(configured_model())
        serve(OpenAIEndpoint(token, device(args), args.patience).app(), sock, print_error)
    return 0


def _print_model(name: str) -> None:
    if not name:
        print_line(
            "No model is in use, so requests are refused. Choose one: gpudeck models use NAME "
            "(to list them: gpudeck models)"
        )
        return
    print_line(f"model: {name}")
    if name == paths.shipped_model().name:
        print_line(
            "This model is made for GPU Deck's own requests and cannot chat. To get a larger one: "
            "gpudeck models pull OWNER/NAME"
        )


def token_file() -> Path:
    """Return the file that holds the token of the endpoint."""
    return paths.home() / "serve.token"
