"""The way from a person's question to the text of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from gpudeck.assistant.host.answers import handle_ask
from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.host.context import RequestContext
from gpudeck.assistant.host.model_residency import ModelResidency
from gpudeck.assistant.host_protocol import Ask
from gpudeck.assistant.tools.proposal_store import ProposalStore
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.support import eventually, state_folder
from tests.walks.noting import Way, noted

QUESTION = Ask("how hot is gpu 0?")


def question_to_answer() -> Mapping[str, Way]:
    """Ask the assistant's process, without its socket, for a value of a recorded GPU."""
    with TemporaryDirectory() as folder, state_folder(Path(folder) / "home"):
        trace = paths.assets() / "h100.trace.gz"
        settings.save(Settings(source=f"replay:{trace}", model_folder=TEMPLATE))
        with Client() as deck:
            eventually(lambda: any(state.reading for state in deck.snapshot().devices))
            context = RequestContext(ModelResidency(), ProposalStore(), RequestChannel())
            handle_ask(QUESTION, context)  # what is loaded once is no part of the way
            with noted() as way:
                handle_ask(QUESTION, context)
            deck.stop_daemon()
    return {"": Way(way.modules)}
