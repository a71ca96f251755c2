"""Free chat with a large model: the prompt of a conversation, and how it is to write. Nothing that it says is checked. Torch-free."""

from __future__ import annotations

import random
from collections.abc import Sequence

from assistant.engine.prompts import STOP, Speaker, conversation
from assistant.messages import CompletionRequest

SYSTEM = (
    "You are the assistant of GPU Deck, a program for people who own NVIDIA GPUs. You cannot see the machine in this chat: where asked "
    "about its GPUs or jobs, say that free chat does not know them."
)
LONGEST = 16_000
"""Characters of a conversation that the model reads; older turns are left out, and that is said."""
TOKENS = 1024
TEMPERATURE, TOP_P = 1.0, 0.4
"""As the official RWKV-7 chat models are used."""


def request(turns: Sequence[str]) -> tuple[CompletionRequest, int]:
    """`turns`: yours and the model's in turn, yours the first and the last. Also returns how many of the oldest were left out."""
    kept = list(turns)
    while len(kept) > 1 and sum(map(len, kept)) > LONGEST:
        del kept[:2]
    speakers: tuple[Speaker, Speaker] = ("User", "Assistant")
    prompt = conversation(
        [("System", SYSTEM), *((speakers[i % 2], turn) for i, turn in enumerate(kept))]
    )
    seed = random.getrandbits(31)
    return CompletionRequest(prompt, TOKENS, TEMPERATURE, TOP_P, seed, (STOP,)), len(turns) - len(
        kept
    )
