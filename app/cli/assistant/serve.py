"""Offer a model through OpenAI's API, to this user's editors and scripts."""

from __future__ import annotations

import os
import socket
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path
from typing import Literal

from gpudeck.app.cli import arguments
from gpudeck.app.cli.assistant.events import device
from gpudeck.app.cli.output import print_error, print_line
from gpudeck.app.cli.token import read_token
from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.library.served import require_served
from gpudeck.assistant.serve import client
from gpudeck.assistant.serve.control import Control
from gpudeck.assistant.serve.endpoint import OpenAIEndpoint
from gpudeck.assistant.serve.running_completion import AssistantModel, configured_model
from gpudeck.assistant.serve.served_model import ServedModel
from gpudeck.assistant.serve.server import Beside, listen, serve
from gpudeck.language.text import phrase
from gpudeck.scheduler.background.instance import report_ready
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError


def add_arguments(parser: ArgumentParser) -> None:
    """Add the model, and the port, the device, and the token of the endpoint."""
    parser.add_argument(
        "model",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="folder of a language model (.safetensors, config.json, tokenizer.json); without it, "
        "the assistant's model answers",
    )
    parser.add_argument(
        "--as",
        dest="held",
        choices=("lease", "job"),
        default="lease",
        help="with FOLDER: use a GPU while nobody else needs it (lease), or hold one as a job of "
        "the queue (default: lease)",
    )
    parser.add_argument(
        "--weights",
        choices=("auto", "bfloat16", "float32", "int8", "fp8", "int4"),
        default="auto",
        help="with FOLDER: how weights are kept (default: auto, as they are stored)",
    )
    parser.add_argument(
        "--cache",
        choices=("auto", "fp8", "int8"),
        default="auto",
        help="with FOLDER: how keys and values are kept (default: auto, as they are computed)",
    )
    parser.add_argument(
        "--cache-tokens",
        type=arguments.count,
        default=0,
        metavar="N",
        help="with FOLDER: number of tokens that the cache can hold (default: as many as fit)",
    )
    parser.add_argument(
        "--draft",
        type=Path,
        metavar="FOLDER",
        help="with FOLDER: a smaller model with the same tokenizer, which proposes tokens; the "
        "answers stay the same",
    )
    parser.add_argument(
        "--prompt-cache",
        type=arguments.size,
        default=Options("").prompts_bytes,
        metavar="SIZE",
        help="with FOLDER: disk space for the cache of long prompts, which lasts until the next "
        "start; 0: none (default: 4GiB)",
    )
    parser.add_argument("--in-job", action="store_true", help=SUPPRESS)
    parser.add_argument("--background", action="store_true", help=SUPPRESS)
    parser.add_argument(
        "--port",
        type=arguments.count,
        default=client.PORT,
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
    try:
        _begin(args)
    except UserError as e:
        if not args.background:
            raise
        report_ready(str(e))  # to the window, which started this
        return 1
    return 0


def _begin(args: Namespace) -> None:
    if args.model is not None:
        require_served(args.model)
    if args.held == "job" and not args.in_job:
        _submit(args)
    else:
        _serve(args)


def _serve(args: Namespace) -> None:
    say = _nothing if args.background else print_line
    file = token_file()
    if args.new_token:
        file.unlink(missing_ok=True)
    token, created = read_token(file)
    with _listening(args) as sock:
        port = sock.getsockname()[1]
        say(f"OpenAI-compatible endpoint at http://127.0.0.1:{port}/v1")
        if created:
            say(f"token: {token} (stored in {file}; not shown again)")
        else:
            say(f"The token is in {file}. To create a new one: --new-token")
        answerer: AssistantModel | ServedModel = AssistantModel()
        beside: Beside | None = None
        if args.model is None:
            _print_model(configured_model())
        else:
            answerer = ServedModel(_options(args))
            say(f"model: {answerer.name}")
            ready = report_ready if args.background else _nothing
            beside = Control(answerer, port, args.held, ready).running
        endpoint = OpenAIEndpoint(answerer, token, device(args), args.patience)
        serve(endpoint.app(), sock, print_error, beside)


def _listening(args: Namespace) -> socket.socket:
    """Listen on the port; the window takes a free one where it is taken, and shows which."""
    try:
        return listen(args.port)
    except UserError:
        if not args.background:
            raise
        return listen(0)


def _nothing(*_: str) -> None:
    pass


def _options(args: Namespace) -> Options:
    where: Literal["auto", "cpu", "cuda"] = "cpu" if args.cpu else "auto"
    if args.in_job:  # what the queue gave it: a GPU, or the CPU where there is none
        where = "cuda" if os.environ.get("CUDA_VISIBLE_DEVICES") and not args.cpu else "cpu"
    folder = str(args.model.expanduser().absolute())
    draft = str(args.draft.expanduser().absolute()) if args.draft else ""
    return Options(
        folder, where, args.weights, args.cache, args.cache_tokens, draft, args.prompt_cache
    )


def _submit(args: Namespace) -> None:
    """Queue this command as a job that holds a GPU."""
    if args.model is None:
        raise UserError(
            phrase("--as job serves the model of a folder: gpudeck serve FOLDER --as job")
        )
    job = client.submit(_options(args), args.port)
    print_line(f"job {job}: serves {args.model.name} at http://127.0.0.1:{args.port}/v1")
    print_line(f"To end it: gpudeck cancel {job}")


def _print_model(name: str) -> None:
    if not name:
        print_line(
            "No model is in use, so requests are refused. Choose one: gpudeck models use NAME "
            "(to list them: gpudeck models)"
        )
        return
    print_line(f"model: {name}")


def token_file() -> Path:
    """Return the file that holds the token of the endpoint."""
    return paths.home() / "serve.token"
