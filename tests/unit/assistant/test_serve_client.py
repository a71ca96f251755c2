"""The server that was just started is told from those that were there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpudeck.assistant.inference.engine_protocol import Options
from gpudeck.assistant.serve import client


def test_an_older_server_of_the_model_is_not_taken_for_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running: list[Any] = [SimpleNamespace(port=8420, folder="/models/a")]

    def start_process(*_: object, **__: object) -> None:
        running.append(SimpleNamespace(port=8421, folder="/models/a"))

    monkeypatch.setattr(client, "served_models", lambda: tuple(running))
    monkeypatch.setattr(client, "start_process", start_process)
    assert client.start(Options("/models/a")).port == 8421
