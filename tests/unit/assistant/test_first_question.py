"""The first question on a machine is answered before the model's code is compiled."""

from __future__ import annotations

import pytest

from assistant.client import Assistant
from scheduler.client import Client
from scheduler.protocol import settings
from scheduler.protocol.settings import Settings
from tests.support import eventually, state_folder

pytestmark = pytest.mark.xdist_group("rwkv")


@pytest.mark.slow
def test_the_first_question_on_a_machine_is_answered_while_its_code_is_compiled(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    with state_folder(tmp_path / "home"):
        settings.save(Settings(source="cpu"))
        with Client() as deck:
            eventually(lambda: any(state.reading for state in deck.snapshot().devices))
            first = Assistant().ask("how busy is the CPU?")
            assert (first.routed, first.by) == ("model rwkv7-deck-13m", "torch")
            assert first.where == "cpu (torch, until compiled for this machine)"
            last = eventually(
                lambda: (
                    (answer := Assistant().ask("how busy is the CPU?")).by == "compiled" and answer
                ),
                300,
            )
            assert last.where == "cpu"
            assert Assistant().benchmark(deck.snapshot().settings.model).decode.median > 0
