"""Prompts in the form that RWKV's chat models were trained on. Free of torch and Qt."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from assistant.messages import CompletionRequest

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

Speaker = Literal["System", "User", "Assistant"]


def prompt(system: str, user: str) -> str:
    """Return the prompt of one question, which the answer follows."""
    return conversation((("System", system), ("User", user)))


def conversation(turns: Iterable[tuple[Speaker, str]]) -> str:
    """Return the prompt of a conversation, which the assistant's next turn follows.

    No turn contains an empty line, so that none can begin another one.
    """
    texts = [f"{speaker}: {_turn(text)}\n\n" for speaker, text in turns]
    return "".join(texts) + "Assistant:"


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
    speakers: tuple[Speaker, Speaker] = ("User", "Assistant")
    spoken = ((speakers[i % 2], turn) for i, turn in enumerate(kept))
    text, seed = conversation([("System", CHAT_SYSTEM), *spoken]), random.getrandbits(31)
    request = CompletionRequest(text, _CHAT_TOKENS, _TEMPERATURE, _TOP_P, seed, (STOP,))
    return request, len(turns) - len(kept)


def _turn(text: str) -> str:
    return re.sub(r"\n{2,}", "\n", text.replace("\r\n", "\n")).strip()
