"""models: which models there are for the assistant, what they need, how fast they are; add, fetch, choose, time and forget them."""

from __future__ import annotations

import threading
from argparse import Namespace

from app.cli.output import say, say_json, status_line, table
from app.cli.usage import UsageError
from app.format.values import memory
from app.models.model_list import parameters, speed_of, state
from assistant.client import Assistant
from assistant.idle import Cancelled
from assistant.library import model_list
from assistant.library.describe import Model
from assistant.library.hub import Progress
from assistant.library.pull import Pull
from assistant.messages import Event, Waiting
from scheduler.client import Client
from scheduler.protocol.errors import UserError
from scheduler.protocol.settings import TEMPLATE

ACTIONS = ("list", "add", "pull", "use", "remove", "benchmark")
_EXAMPLES = {
    "add": "gpudeck models add ~/models/rwkv7-0.4B",
    "pull": "gpudeck models pull fla-hub/rwkv7-1.5B-world",
    "use": "gpudeck models use rwkv7-0.4B, or: gpudeck models use template",
    "remove": "gpudeck models remove rwkv7-0.4B",
    "benchmark": "gpudeck models benchmark rwkv7-0.4B --device cuda",
}


def models(args: Namespace) -> int:
    if args.action == "list":
        return _list(args)
    if not args.name:
        raise UsageError(f"which model? Example: {_EXAMPLES[args.action]}")
    return {"add": _add, "pull": _pull, "use": _use, "remove": _remove, "benchmark": _benchmark}[
        args.action
    ](args)


def _used() -> str:
    with Client() as deck:
        return deck.snapshot().settings.model


def _list(args: Namespace) -> int:
    used = _used()
    found = model_list.listed_models(used)
    if args.json:
        say_json(found)
        return 0
    heading = ("MODEL", "PARAMETERS", "ON DISK", "NAMES", "NEEDS ON CPU", "ON CUDA", "")
    table([heading, *(_row(model, used) for model in found)], right=(1, 2, 4, 5))
    if not used:
        say(
            f"none is used: the template writes all texts. To choose one: gpudeck models use {found[0].name}"
        )
    return 0


def _row(model: Model, used: str) -> tuple[str, ...]:
    needs = [
        memory(model.needs[device]) if device in model.needs else "" for device in ("cpu", "cuda")
    ]
    return (
        model.name,
        parameters(model),
        memory(model.bytes),
        model.dialect,
        *needs,
        state(model, used),
    )


def _add(args: Namespace) -> int:
    return _told(model_list.add(args.name), args, "is on the list")


def _pull(args: Namespace) -> int:
    """Ctrl+C ends it; what was fetched is kept."""
    pull = Pull(args.name)
    made: list[Model | None] = []
    failed: list[UserError] = []

    def run() -> None:
        try:
            made.append(pull.run(_show_progress))
        except UserError as e:
            failed.append(e)

    worker = threading.Thread(target=run, name="pull")
    worker.start()
    try:
        while worker.is_alive():
            worker.join(0.2)
    except KeyboardInterrupt:
        pull.cancel()
        worker.join()
        raise UserError(
            f"stopped; what was fetched is kept. To go on: gpudeck models pull {pull.name}"
        ) from None
    status_line("")
    if failed:
        raise failed[0]
    assert made[0] is not None, "only Ctrl+C ends it before its end"
    return _told(made[0], args, f"is in {pull.folder}")


def _show_progress(told: Progress) -> None:
    doing = "checks" if told.checking else "fetches"
    status_line(
        f"{doing} {told.file}: {memory(told.done)} of {memory(told.total)} ({100 * told.done / max(told.total, 1):.0f} %)"
    )


def _use(args: Namespace) -> int:
    with Client() as deck:
        settings = deck.snapshot().settings
        if args.name in ("none", TEMPLATE):
            deck.configure(model_folder=TEMPLATE)
            say("no model is used: the template writes all texts")
            return 0
        model = model_list.find(args.name, settings.model)
        if model.problem:
            raise UserError(model.problem)
        if setting := model_list.setting_of(model):
            model_list.add(setting)  # so that it stays on the list when another one is chosen
        deck.configure(model_folder=setting)
    return _told(model, args, f"is in use on {settings.model_device} (setting model_device)")


def _remove(args: Namespace) -> int:
    model = model_list.find(args.name)
    model_list.remove(model.path)
    return _told(model, args, f"is off the list; its files stay in {model.path}")


def _benchmark(args: Namespace) -> int:
    model = model_list.find(args.name, _used())
    assistant = Assistant()

    def on_event(event: Event) -> None:
        if isinstance(event, Waiting):
            status_line(event.reason)

    try:
        speed = assistant.benchmark(model.path, args.device, on_event)
    except (KeyboardInterrupt, Cancelled):
        assistant.cancel()
        raise
    finally:
        status_line("")
    if args.json:
        say_json(speed)
    else:
        say(f"{speed.model} {speed_of(speed)}")
    return 0


def _told(model: Model, args: Namespace, what: str) -> int:
    if args.json:
        say_json(model)
    else:
        say(f"{model.name} ({parameters(model)} parameters) {what}")
    return 0
