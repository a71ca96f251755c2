"""A conversation as a file for people (Markdown, the branch that is shown) or programs (JSON, all branches)."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from app.assistant.conversation import Conversation
from app.assistant.message import Message
from assistant.reports.files import write_private
from scheduler.protocol.errors import UserError


def exported(conversation: Conversation, file: str) -> str:
    """The text of a file by what its name ends with. Raises UserError for another ending than .md and .json."""
    suffix = Path(file).suffix.lower()
    if suffix == ".md":
        return as_markdown(conversation)
    if suffix == ".json":
        return as_json(conversation)
    raise UserError(
        f"the file's name must end with .md or .json, which says the format; got {Path(file).name!r}"
    )


def as_json(conversation: Conversation) -> str:
    """The key, title and all messages with what each follows."""
    return msgspec.json.format(msgspec.json.encode(conversation.saved())).decode() + "\n"


def as_markdown(conversation: Conversation) -> str:
    """Questions as quotes, answers as they are, with who wrote each and what it rests on."""
    return "\n\n".join([f"# {conversation.title}", *map(_markdown, conversation.messages)]) + "\n"


def write_text(file: Path, text: str) -> None:
    """For its owner's eyes, and never half of it. Raises UserError where that is impossible."""
    write_private(file, text.encode(errors="replace"))


def _markdown(message: Message) -> str:
    if message.author == "you":
        return "\n".join(f"> {line}".rstrip() for line in message.text.splitlines())
    told = [f"written by {message.writer}"] if message.writer else []
    told += [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(message.at))] if message.at else []
    told += [message.note] if message.note else []
    facts = [f"- {name} ({source})" if source else f"- {name}" for name, _, source in message.facts]
    parts = [
        message.text,
        f"*{', '.join(told)}*" if told else "",
        "Sources:\n" + "\n".join(facts) if facts else "",
    ]
    return "\n\n".join(part for part in parts if part)


def code_blocks(markdown: str) -> tuple[str, ...]:
    """The fenced code in a text, without its fences. A fence that is not closed yet goes to the end."""
    found: list[list[str]] = []
    fence = ""
    for line in markdown.splitlines():
        stripped = line.strip()
        if fence:
            if stripped.startswith(fence) and not stripped.strip(fence[0]):
                fence = ""
            else:
                found[-1].append(line)
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[: len(stripped) - len(stripped.lstrip(stripped[0]))]
            found.append([])
    return tuple("\n".join(lines) for lines in found)
