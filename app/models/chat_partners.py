"""Find the models that free chat can use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from app.format.values import significant
from app.models.model_list import SMALL_MODEL_HELP, is_used, parameters
from assistant.library.describe import LARGE, Model
from assistant.serve.control_messages import Served

_UNKNOWING = "It knows nothing of this machine, and nothing it says is checked against facts."


class ChatPartner(NamedTuple):
    """Describe a model that free chat can use."""

    title: str
    folder: str
    """Of a served model, or one that can be; empty for the assistant's own."""
    help: str


def chat_partners(
    models: Sequence[Model], used: str, served: Sequence[Served]
) -> tuple[ChatPartner, ...]:
    """Return the models that can chat: those that are served, the assistant's, and then others.

    Args:
        models: On the list.
        used: The path of the assistant's model.
        served: The models that are served now.
    """
    running = {each.folder: each for each in served if each.phase != "failed"}
    found = [
        ChatPartner(each.name, each.folder, f"Talk to {each.name}, which is served. {_UNKNOWING}")
        for each in running.values()
    ]
    own = next((model for model in models if is_used(model, used)), None)
    if own is not None and not own.problem and own.large:
        found.append(ChatPartner(own.name, "", f"Talk to {own.name} itself. {_UNKNOWING}"))
    for model in models:
        if model.chats and not model.problem and model.path not in running:
            loads = (
                f"Talk to {model.name}, which is served from your first message on. {_UNKNOWING}"
            )
            found.append(ChatPartner(f"{model.name} (not loaded)", model.path, loads))
    return tuple(found)


def no_partner_help(models: Sequence[Model], used: str) -> str:
    """Return why there is no free chat."""
    own = next((model for model in models if is_used(model, used)), None)
    if own is None or own.problem:
        return (
            f"Free chat needs a served model, or one of at least {significant(LARGE / 1e6)} M "
            "parameters for the assistant. Choose one under Models."
        )
    return f"{own.name} has {parameters(own)} parameters, too few for free chat. {SMALL_MODEL_HELP}"
