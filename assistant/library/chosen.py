"""Make a downloaded model the assistant's, unless another one was chosen meanwhile."""

from __future__ import annotations

from typing import Literal

from gpudeck.assistant.library.describe import Model
from gpudeck.scheduler.client import Client


def chosen_model(client: Client) -> str:
    """Return the setting `model_folder`."""
    return client.snapshot().settings.model_folder


def use_if_still(client: Client, before: str, model: Model, device: Literal["cpu", "cuda"]) -> bool:
    """Make the model the assistant's, if the choice is still that of before; return whether.

    Args:
        client: A client of the daemon.
        before: `chosen_model` when the download began.
        model: The model that was downloaded.
        device: The value of the setting `model_device` for it.
    """
    if chosen_model(client) != before:
        return False
    client.configure(model_folder=model.path, model_device=device)
    return True
