"""List, add, download, choose, benchmark and remove models; list and stop those that are served."""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from typing import get_args

from gpudeck.accel.serving.memory import free_host_bytes
from gpudeck.app.cli.output import (
    UsageError,
    clear_progress,
    print_json,
    print_line,
    print_list,
    print_result,
    print_table,
    show_progress,
)
from gpudeck.app.format.values import memory
from gpudeck.app.models import offer_text, served_text
from gpudeck.app.models.model_list import package_text, parameters, speed_text, state
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.host_protocol import Event, SpeedEngine, Waiting
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.library import model_list
from gpudeck.assistant.library.chosen import chosen_model, use_if_still
from gpudeck.assistant.library.describe import Model
from gpudeck.assistant.library.hub import FetchProgress
from gpudeck.assistant.library.pull import Pull
from gpudeck.assistant.library.recommended import Recommendation, recommend
from gpudeck.assistant.serve.client import find_served, served_models, stop
from gpudeck.assistant.serve.control_messages import Served
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE

_EXAMPLES = {
    "add": "gpudeck models add ~/models/rwkv7-0.4B",
    "pull": "gpudeck models pull fla-hub/rwkv7-1.5B-world",
    "use": "gpudeck models use rwkv7-0.4B, or: gpudeck models use template",
    "remove": "gpudeck models remove rwkv7-0.4B",
    "benchmark": "gpudeck models benchmark rwkv7-0.4B --device cuda",
    "stop": "gpudeck models stop Qwen3-8B",
}
ACTIONS = ("list", "served", *_EXAMPLES)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the action, and the model it is for."""
    parser.add_argument(
        "action",
        choices=ACTIONS,
        nargs="?",
        default="list",
        metavar="|".join(ACTIONS),
        help="what to do (default: list)",
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="MODEL",
        help="the model's name in the list, its folder or file; with pull: OWNER/NAME; with stop: "
        "the name, folder or port of a served model",
    )
    parser.add_argument(
        "--recommended",
        action="store_true",
        help="with pull: download the RWKV-7 that fits this machine, and use it",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="with benchmark: the device to run on (default: cpu)",
    )
    parser.add_argument(
        "--engine",
        choices=get_args(SpeedEngine),
        default="own",
        help="with benchmark: rwkv also measures the package rwkv, beside our own engine "
        "(default: own)",
    )


def run(args: Namespace) -> None:
    """Carry out the action that the arguments name."""
    if args.recommended:
        _take_recommended(args)
        return
    if not args.name and args.action in _EXAMPLES:
        raise UsageError(f"missing model. Example: {_EXAMPLES[args.action]}")
    actions = {
        "list": _list,
        "served": _list_served,
        "add": _add,
        "pull": _pull,
        "use": _use,
        "remove": _remove,
        "benchmark": _benchmark,
        "stop": _stop,
    }
    actions[args.action](args)


def _list(args: Namespace) -> None:
    used = _used_model()
    found = model_list.listed_models(used)
    if args.json:
        print_json(found)
        return
    if found:
        heading = ("MODEL", "PARAMETERS", "ON DISK", "FAMILY", "NEEDS ON CPU", "ON CUDA", "")
        print_table([heading, *(_row(model, used) for model in found)], right=(1, 2, 4, 5))
    if not used:
        print_line("No model is in use: templates write all texts.")
        if found:
            print_line(f"To choose one: gpudeck models use {found[0].name}")
        _print_offer(_recommended(), "To download and use it: gpudeck models pull --recommended")


def _recommended() -> Recommendation | Message:
    with Client() as client:
        return recommend(client.snapshot().devices, free_host_bytes())


def _print_offer(offered: Recommendation | Message, step: str) -> None:
    """Print the model that fits this machine and the next step, or why there is none."""
    if not isinstance(offered, Recommendation):
        print_line(str(offered))
        return
    for line in (offered.model.name, *offer_text.lines(offered), step):
        print_line(line)


def _take_recommended(args: Namespace) -> None:
    """Download the model that fits this machine, and make it the assistant's."""
    if args.action != "pull" or args.name:
        raise UsageError("--recommended belongs to: gpudeck models pull --recommended")
    offered = _recommended()
    if not isinstance(offered, Recommendation):
        raise UserError(offered)
    if not args.json:
        _print_offer(offered, f"Press Ctrl+C to stop. {offer_text.page(offered)}")
    with Client() as client:
        before = chosen_model(client)
    model = _downloaded(Pull(offered.model.name, offered.model.most_bytes))
    with Client() as client:
        used = use_if_still(client, before, model, offered.device)
    done = f"is in use on {offered.device} (setting model_device)"
    kept = "was downloaded; another model was chosen meanwhile and stays in use"
    _print_model(model, args, done if used else kept)


def _list_served(args: Namespace) -> None:
    found = served_models()
    print_list(
        args, found,
        ("MODEL", "ADDRESS", "ON", "REQUESTS", "SPEED", "CACHE", "PREFIX HITS", "STATE"),
        [_served_row(served) for served in found],
        "No model is served. To serve one: gpudeck serve FOLDER",
    )  # fmt: skip


def _served_row(served: Served) -> tuple[str, ...]:
    name = (served.name, served.address, served.device or "–")
    if problem := served_text.state(served):
        return (*name, "–", "–", "–", "–", problem)
    told = (served_text.requests, served_text.rate, served_text.cache, served_text.prefix_hits)
    return (*name, *(text(served) for text in told), "ready")


def _stop(args: Namespace) -> None:
    served = find_served(args.name)
    stop(served.port)
    print_result(args, served, f"{served.name} at port {served.port} was stopped.")


def _row(model: Model, used: str) -> tuple[str, ...]:
    needs = [
        memory(model.needs[device]) if device in model.needs else "" for device in ("cpu", "cuda")
    ]
    size = parameters(model), memory(model.bytes)
    return (model.name, *size, model.family or "RWKV-7", *needs, state(model, used))


def _used_model() -> str:
    with Client() as client:
        return client.snapshot().settings.model


def _add(args: Namespace) -> None:
    _print_model(model_list.add(args.name), args, "was added to the list")


def _pull(args: Namespace) -> None:
    pull = Pull(args.name)
    _print_model(_downloaded(pull), args, f"is in {pull.folder}")


def _downloaded(pull: Pull) -> Model:
    """Download a model; keep what was downloaded if Ctrl+C interrupts it."""
    models: list[Model | None] = []
    errors: list[UserError] = []

    def download() -> None:
        try:
            models.append(pull.run(_show_download))
        except UserError as e:
            errors.append(e)

    worker = threading.Thread(target=download, name="pull")
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.2)
    except KeyboardInterrupt:
        pull.cancel()
        worker.join()
        raise UserError(
            phrase(
                "stopped; the downloaded part was kept. To continue: gpudeck models pull {name}",
                name=pull.name,
            )
        ) from None
    clear_progress()
    if errors:
        raise errors[0]
    assert models[0] is not None, "only Ctrl+C stops a download early"
    return models[0]


def _show_download(progress: FetchProgress) -> None:
    doing = "checking" if progress.checking else "downloading"
    size = f"{memory(progress.done)} of {memory(progress.total)}"
    percent = 100 * progress.done / max(progress.total, 1)
    show_progress(f"{doing} {progress.file}: {size} ({percent:.0f} %)")


def _use(args: Namespace) -> None:
    with Client() as client:
        settings = client.snapshot().settings
        if args.name in ("none", TEMPLATE):
            client.configure(model_folder=TEMPLATE)
            print_line("No model is in use: templates write all texts.")
            return
        model = model_list.find(args.name, settings.model)
        if model.problem:
            raise UserError(model.problem)
        if model.family:
            raise UserError(
                phrase(
                    "{name} is served, while the assistant uses RWKV-7: gpudeck serve {path}",
                    name=model.name,
                    path=str(model.path),
                )
            )
        model_list.add(model.path)  # so that it stays on the list when another model is chosen
        client.configure(model_folder=model.path)
    _print_model(model, args, f"is in use on {settings.model_device} (setting model_device)")


def _remove(args: Namespace) -> None:
    model = model_list.find(args.name)
    model_list.remove(model.path)
    _print_model(model, args, f"was removed from the list; its files remain in {model.path}")


def _benchmark(args: Namespace) -> None:
    model = model_list.find(args.name, _used_model())
    assistant = Assistant()

    def on_event(event: Event) -> None:
        if isinstance(event, Waiting):
            show_progress(str(event.reason))

    try:
        speed = assistant.benchmark(model.path, args.device, on_event, args.engine)
    except (KeyboardInterrupt, Cancelled):
        assistant.cancel()
        raise
    finally:
        clear_progress()
    print_result(args, speed, f"{speed.model} {speed_text(speed)}", *package_text(speed))


def _print_model(model: Model, args: Namespace, what: str) -> None:
    print_result(args, model, f"{model.name} ({parameters(model)} parameters) {what}.")
