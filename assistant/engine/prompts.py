"""Prompts in the form that RWKV's chat models were trained on. Free of torch and Qt."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.host_protocol import CompletionRequest

STOP = "\n\nUser"
"""The text with which the model would go on to write the user's part."""
CHAT_SYSTEM = (
    "You are the assistant of GPU Deck, a program for people who own NVIDIA GPUs. You cannot see "
    "the machine in this chat: where asked about its GPUs or jobs, say that free chat does not "
    "know them."
)
MAX_CHAT_CHARACTERS = 16_000
"""The characters of a conversation that the model reads; older turns are left out."""
_CHAT_TOKENS = 1024
_TEMPERATURE, _TOP_P = 1.0, 0.4
"""The values that the official RWKV-7 chat models are used with."""

_ROLES = ("user", "assistant")


def prompt(system: str, user: str) -> str:
    """Return the prompt of one question, which the answer follows.

    No turn contains an empty line, so that none can begin another one.
    """
    return f"System: {_turn(system)}\n\nUser: {_turn(user)}\n\nAssistant:"


def chat_request(turns: Sequence[str]) -> tuple[CompletionRequest, int]:
    """Return the request for the next turn of a free chat, and how many old turns it leaves out.

    Nothing checks what the model answers.

    Args:
        turns: The turns of the user and of the model in alternation; the first and the last are
            the user's.
    """
    kept = list(turns)
    while len(kept) > 1 and sum(map(len, kept)) > MAX_CHAT_CHARACTERS:
        del kept[:2]
    messages = [{"role": "system", "content": CHAT_SYSTEM}]
    messages += [{"role": _ROLES[i % 2], "content": turn} for i, turn in enumerate(kept)]
    sampling = Sampling(_TEMPERATURE, top_p=_TOP_P, seed=random.getrandbits(31))
    wanted = Wanted(sampling, _CHAT_TOKENS, messages)
    return CompletionRequest(wanted), len(turns) - len(kept)


def _turn(text: str) -> str:
    return re.sub(r"\n{2,}", "\n", text.replace("\r\n", "\n")).strip()
