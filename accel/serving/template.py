"""Render a chat as a model was trained to read it, by a Jinja template.

A template that came with a model is a program that others wrote. It runs in Jinja's sandbox, in a
process of its own: see `gpudeck.accel.serving.folder_template`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.language.text import phrase


class Template(Protocol):
    """Render chats."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        prompt: bool = True,
    ) -> str:
        """Return the prompt for the next message.

        Args:
            messages: With `role` and `content`, as OpenAI's API has them.
            tools: The functions that the model may call, likewise.
            prompt: End with what the model's next answer follows; else with the last message.

        Raises:
            RequestRefused: The template refuses the chat, or fails.
        """


class ChatTemplate:
    """Render chats in this process, without a limit of time or memory."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        """Compile a template.

        Args:
            source: In Jinja.
            tokens: The texts of special tokens by name, such as bos_token.

        Raises:
            ModelRefused: It is not a template.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _refuse, "strftime_now": time.strftime}
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError, SyntaxError) as e:
            raise ModelRefused(
                phrase("the chat template cannot be compiled: {problem}", problem=_line(e))
            ) from e
        self._tokens = dict(tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        prompt: bool = True,
    ) -> str:
        """Return the prompt for the next message; see `Template.render`."""
        values = {
            **self._tokens, "messages": list(messages), "tools": list(tools) or None,
            "add_generation_prompt": prompt,
        }  # fmt: skip
        try:
            return self._template.render(values)
        except (RequestRefused, MemoryError):
            raise
        except Exception as e:  # a template's expressions raise whatever they like
            raise RequestRefused(
                f"the model's chat template cannot render this chat: {_line(e)}"
            ) from e


def _line(words: object) -> str:
    """Return what a template says as the part of one line."""
    return " ".join(str(words)[:200].split())


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: object) -> NoReturn:
    raise RequestRefused(f"the model's chat template refuses this chat: {_line(message)}")
