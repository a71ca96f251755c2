"""Conversations as the texts that RWKV's chat models were trained on. Free of torch and Qt."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

STOP = "\n\nUser"
"""Where the model would go on with the user's part."""

Speaker = Literal["System", "User", "Assistant"]


def prompt(system: str, user: str) -> str:
    """One question, and room for the answer."""
    return conversation((("System", system), ("User", user)))


def conversation(turns: Iterable[tuple[Speaker, str]]) -> str:
    """What was said so far, and room for the answer: no empty line within a turn, so that none can begin another; no space at the end."""
    said = [f"{speaker}: {_turn(text)}\n\n" for speaker, text in turns]
    return "".join(said) + "Assistant:"


def _turn(text: str) -> str:
    return re.sub(r"\n{2,}", "\n", text.replace("\r\n", "\n")).strip()
