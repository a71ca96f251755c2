"""Render a chat as its model was trained to read it, by the folder's own Jinja template.

A template is a program that came with a model. It runs in Jinja's sandbox, which keeps it from
everything but the values it is given, and within limits of loops, sizes and time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.accel.serving.families import read_json

_MOST_SOURCE = 2**18
_MOST_ROUNDS = 200_000
_MOST_TEXT = 2**22
_MOST_S = 2.0
_MOST_NUMBER = 10**6
_MOST_PRODUCT = 2**28
"""Of the lengths of two values that an operation may combine, as `replace` and `join` do."""
_ADDED = ("bos_token", "eos_token", "pad_token", "unk_token")


class _Exceeded(Exception):
    """Signal that a template exceeded a limit."""


class _Environment(ImmutableSandboxedEnvironment):
    """Refuse the few operations by which a short template makes something huge."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute left + right, or left *, ** or % right of modest numbers."""
        for value in (left, right) if operator != "+" else ():
            if not isinstance(value, int | float) or abs(value) > _MOST_NUMBER:
                raise _Exceeded(f"it computes {operator} of something that is not a modest number")
        return _small(super().call_binop(context, operator, left, right))

    def call(self, context: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        """Call a function with modest values."""
        _check_modest((getattr(function, "__self__", None), *args, *named.values()))
        return _small(super().call(context, function, *args, **named))


class ChatTemplate:
    """Render chats."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        """Compile a template.

        Args:
            source: In Jinja.
            tokens: The texts of special tokens by name, such as bos_token.

        Raises:
            ModelRefused: It is too long, or not a template.
        """
        if len(source) > _MOST_SOURCE:
            raise ModelRefused(f"the chat template has more than {_MOST_SOURCE} characters")
        environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters = {
            name: _modest(made) for name, made in environment.filters.items()
        } | {"tojson": _tojson}
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.globals |= {"_tick": lambda: None, "_concatenated": _concatenated}
        try:
            parsed = environment.parse(source)
            _count_rounds(parsed)
            parsed = _Concatenations().visit(parsed)
            self._template = environment.from_string(parsed)
        except (TemplateError, RecursionError, SyntaxError) as e:
            raise ModelRefused(f"the chat template cannot be compiled: {e!s:.200}") from e
        self._tokens = dict(tokens)

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """Return the prompt for the next message.

        Args:
            messages: With `role` and `content`, as OpenAI's API has them.
            tools: The functions that the model may call, likewise.

        Raises:
            RequestRefused: The template refuses the chat, fails, or exceeds a limit.
        """
        limit = _Limit()
        values = {
            **self._tokens, "messages": list(messages), "tools": list(tools) or None,
            "add_generation_prompt": True, "_tick": limit.count,
        }  # fmt: skip
        try:
            return limit.joined(self._template.generate(values))
        except RequestRefused:
            raise
        except _Exceeded as e:
            raise RequestRefused(f"the model's chat template was stopped: {e}") from e
        except Exception as e:  # a template's expressions raise whatever they like
            raise RequestRefused(
                f"the model's chat template cannot render this chat: {e!s:.200}"
            ) from e


def load_template(folder: Path) -> ChatTemplate | None:
    """Return the chat template in a model's folder; None if it has none. Raises ModelRefused."""
    file, source = folder / "chat_template.jinja", None
    config: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        config = read_json(folder / "tokenizer_config.json")
        source = config.get("chat_template")
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
    if file.is_file():
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ModelRefused(f"cannot read {file}: {e!s:.200}") from e
    if not isinstance(source, str):
        return None
    tokens = {name: _text(config.get(name)) for name in _ADDED}
    return ChatTemplate(source, tokens)


def _text(token: object) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


class _Concatenations(NodeTransformer):
    """Replace a ~ b by a call that checks the length of the result."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        """Return the call."""
        self.generic_visit(node)
        name = nodes.Name("_concatenated", "load", lineno=node.lineno)
        return nodes.Call(name, node.nodes, [], None, None, lineno=node.lineno)


def _concatenated(*parts: Any) -> str:
    return "".join(map(str, parts))


class _Limit:
    """Count what a template does."""

    def __init__(self) -> None:
        self._rounds, self._end = 0, time.monotonic() + _MOST_S

    def count(self) -> None:
        """Count a round of a loop or a call of a macro. Raises _Exceeded."""
        self._rounds += 1
        if self._rounds > _MOST_ROUNDS:
            raise _Exceeded(f"its loops ran {_MOST_ROUNDS} times")
        if time.monotonic() > self._end:
            raise _Exceeded(f"it ran for {_MOST_S:.0f} s")

    def joined(self, pieces: Iterable[str]) -> str:
        """Return the whole text. Raises _Exceeded."""
        found, length = [], 0
        for piece in pieces:
            found.append(piece)
            length += len(piece)
            if length > _MOST_TEXT:
                raise _Exceeded(f"it wrote {_MOST_TEXT} characters")
        return "".join(found)


def _count_rounds(parsed: nodes.Template) -> None:
    """Insert a call of `_tick` into every loop and macro."""
    kinds = (nodes.For, nodes.Macro, nodes.CallBlock)
    for node in (found for kind in kinds for found in parsed.find_all(kind)):
        assert isinstance(node, kinds)
        name = nodes.Name("_tick", "load", lineno=node.lineno)
        call = nodes.Call(name, [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(call, lineno=node.lineno))


def _modest(filter_: Any) -> Any:
    """Return a filter that refuses huge numbers, such as the width of `center`."""

    def checked(*args: Any, **named: Any) -> Any:
        _check_modest((*args, *named.values()))
        return _small(filter_(*args, **named))

    for name in ("jinja_pass_arg", "jinja_async_variant"):
        if hasattr(filter_, name):
            setattr(checked, name, getattr(filter_, name))
    return checked


def _check_modest(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int | float) and abs(value) > _MOST_NUMBER:
            raise _Exceeded(f"it uses the number {value}")
    lengths = sorted(len(value) for value in values if isinstance(value, str | list | tuple))
    if len(lengths) > 1 and lengths[-1] * lengths[-2] > _MOST_PRODUCT:
        raise _Exceeded("it combines texts that are too long")


def _small(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > _MOST_TEXT:
        raise _Exceeded(f"it makes a text of more than {_MOST_TEXT} characters")
    return value


def _tojson(value: Any, indent: int | None = None, **_: Any) -> str:
    if indent is not None and indent > 16:
        raise _Exceeded("it indents by more than 16")
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: object) -> NoReturn:
    raise RequestRefused(f"the model's chat template refuses this chat: {message!s:.200}")


def _now(pattern: str) -> str:
    return time.strftime(pattern)
