"""serve: the assistant's model as an OpenAI-compatible endpoint, for editors and scripts of this user."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from app.cli.output import say
from app.cli.token import read_token
from assistant.serve.endpoint import OpenAIEndpoint, configured_model
from assistant.serve.server import listen, serve
from scheduler.protocol import paths


def run(args: Namespace) -> int:
    """Serve until interrupted."""
    file = token_file()
    if args.new_token:
        file.unlink(missing_ok=True)
    token, made = read_token(file)
    name = configured_model()
    with listen(args.port) as sock:
        say(f"OpenAI-compatible endpoint at http://127.0.0.1:{sock.getsockname()[1]}/v1")
        say(
            f"token: {token} (shown this once; it stays in {file})"
            if made
            else f"the token is in {file}; another: --new-token"
        )
        say(
            f"model: {name}"
            if name
            else "no model is in use, so requests are refused; choose one: gpudeck models use NAME (those there are: gpudeck models)"
        )
        if name == paths.shipped_model().name:
            say(
                "it was made for GPU Deck's own requests and facts, and cannot chat; for larger ones: gpudeck models pull OWNER/NAME"
            )
        serve(OpenAIEndpoint(token, "cpu" if args.cpu else "auto", args.patience).app(), sock)
    return 0


def token_file() -> Path:
    return paths.home() / "serve.token"
