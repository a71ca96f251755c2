"""Find the models that free chat can use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr, tr_noop
from gpudeck.app.models.model_list import is_used, parameters
from gpudeck.assistant.library.describe import LARGE, Model
from gpudeck.assistant.serve.control_messages import Served

_UNKNOWING = tr_noop(
    "It knows nothing of this machine, and nothing it says is checked against facts."
)


class ChatPartner(NamedTuple):
    """Describe a model that free chat can use."""

    title: str
    folder: str
    """Of a served model, or one that can be; empty for the assistant's own."""
    help: str


def chat_partners(
    models: Sequence[Model], used: str, served: Sequence[Served]
) -> Iterator[ChatPartner]:
    """Return the models that can chat: those that are served, the assistant's, and then others.

    Args:
        models: On the list.
        used: The path of the assistant's model.
        served: The models that are served now.
    """
    running = {each.folder: each for each in served if each.phase != "failed"}
    unknowing = tr(_UNKNOWING)
    for each in running.values():
        talk = tr("Talk to {name}, which is served.", name=each.name)
        yield ChatPartner(each.name, each.folder, f"{talk} {unknowing}")
    own = next((model for model in models if is_used(model, used)), None)
    if own is not None and not own.problem and own.large:
        talk = tr("Talk to {name} itself.", name=own.name)
        yield ChatPartner(own.name, "", f"{talk} {unknowing}")
    for model in models:
        if model.chats and not model.problem and model.path not in running:
            talk = tr(
                "Talk to {name}, which is served from your first message on.", name=model.name
            )
            title = tr("{name} (not loaded)", name=model.name)
            yield ChatPartner(title, model.path, f"{talk} {unknowing}")


def no_partner_help(models: Sequence[Model], used: str) -> str:
    """Return why there is no free chat."""
    own = next((model for model in models if is_used(model, used)), None)
    if own is None or own.problem:
        return tr(
            "Free chat needs a served model, or one of at least {size} M parameters for the "
            "assistant. Choose one under Models.",
            size=significant(LARGE / 1e6),
        )
    return tr(
        "{name} has {size} parameters, too few for free chat.",
        name=own.name,
        size=parameters(own),
    )
