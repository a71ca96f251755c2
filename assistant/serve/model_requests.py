"""The two kinds of requests to the endpoint: chats and texts. Free of torch and Qt."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec

from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.serve.requests import (
    MOST_NESTED,
    CompletionOptions,
    Count,
    RequestRefused,
    TextPart,
    is_shallow,
)
from gpudeck.scheduler.protocol.errors import MALFORMED

_TEXT_TOKENS = 16
"""Tokens of a text completion that names no limit, as in the reference."""
Likely = Annotated[int, msgspec.Meta(ge=0, le=20)]


class Function(msgspec.Struct, frozen=True):
    """Describe a function that the model may call."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool | None = None

    def __post_init__(self) -> None:
        _check_shallow(self.parameters, "parameters")


class Tool(msgspec.Struct, frozen=True):
    """Offer a function."""

    function: Function
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct, frozen=True):
    """Name a function."""

    name: str


class NamedTool(msgspec.Struct, frozen=True):
    """Ask for one function to be called."""

    function: NamedFunction
    type: Literal["function"] = "function"


class CalledFunction(msgspec.Struct, frozen=True):
    """Hold a call that the model made before."""

    name: str
    arguments: str


class Called(msgspec.Struct, frozen=True):
    """Hold a call that the model made before, with its id."""

    function: CalledFunction
    id: str = ""
    type: Literal["function"] = "function"


class Message(msgspec.Struct, frozen=True):
    """Hold one message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None
    tool_calls: list[Called] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None

    def __post_init__(self) -> None:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"`content` is null in a message of the role {self.role}")

    def to_dict(self) -> dict[str, Any]:
        """Return it as chat templates expect it."""
        content = self.content
        if not isinstance(content, str):
            content = "\n".join(part.text for part in content or ())
        role = "system" if self.role == "developer" else self.role
        made: dict[str, Any] = {"role": role, "content": content}
        if self.tool_calls:
            made["tool_calls"] = [
                {"type": "function", "id": call.id, "function": {
                    "name": call.function.name, "arguments": _arguments(call.function.arguments)}}
                for call in self.tool_calls
            ]  # fmt: skip
        for name in ("name", "tool_call_id"):
            if (value := getattr(self, name)) is not None:
                made[name] = value
        return made


class Schema(msgspec.Struct, frozen=True):
    """Hold the JSON schema of an answer."""

    schema: dict[str, Any]
    name: str = ""
    description: str | None = None
    strict: bool | None = None

    def __post_init__(self) -> None:
        _check_shallow(self.schema, "schema")


class Format(msgspec.Struct, frozen=True):
    """Hold the format of an answer; `regex` is an addition to OpenAI's."""

    type: Literal["text", "json_object", "json_schema", "regex"]
    json_schema: Schema | None = None
    regex: str | None = None

    def grammar(self) -> tuple[Literal["", "json_schema", "regex"], str]:
        """Return the kind and text of the grammar. Raises RequestRefused."""
        match self.type:
            case "text":
                return "", ""
            case "json_object":
                return "json_schema", '{"type": "object"}'
            case "json_schema" if self.json_schema is not None:
                return "json_schema", json.dumps(self.json_schema.schema)
            case "regex" if self.regex is not None:
                return "regex", self.regex
        raise RequestRefused(
            f"response_format of the type {self.type} needs `{self.type}`", param="response_format"
        )


class ModelChat(CompletionOptions, frozen=True, kw_only=True):
    """Ask for the next message of a chat."""

    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=10_000)]
    max_completion_tokens: Count | None = None
    response_format: Format | None = None
    logprobs: bool | None = None
    top_logprobs: Likely | None = None
    tools: Annotated[list[Tool], msgspec.Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    modalities: Annotated[list[Literal["text"]], msgspec.Meta(max_length=1)] | None = None
    functions: None = None
    function_call: Literal["none"] | None = None
    audio: None = None
    prediction: None = None

    def wanted(self) -> Wanted:
        """Return what is asked of the model. Raises RequestRefused."""
        kind, text = self.response_format.grammar() if self.response_format else ("", "")
        tools = [] if self.tool_choice == "none" else self.tools or []
        if (forced := self._forced(tools)) is not None:
            kind, text = "json_schema", json.dumps(forced)
        return Wanted(
            self.sampling((self.top_logprobs or 0) if self.logprobs else -1),
            self.max_completion_tokens or self.max_tokens or 0,
            messages=[message.to_dict() for message in self.messages],
            tools=[msgspec.to_builtins(tool) for tool in tools],
            stops=self.stops,
            grammar=kind,
            grammar_text=text,
            client=self.user or "",
            ignore_end=self.ignore_eos,
            program=True,
        )

    def _forced(self, tools: list[Tool]) -> dict[str, Any] | None:
        """Return the schema of a call that has to be made; None if none has to."""
        if self.tool_choice in (None, "none", "auto"):
            return None
        if isinstance(self.tool_choice, NamedTool):
            name = self.tool_choice.function.name
            tools = [tool for tool in tools if tool.function.name == name]
        if not tools:
            raise RequestRefused("tool_choice names no function of `tools`", param="tool_choice")
        return {"anyOf": [_call_schema(tool.function) for tool in tools]}


class ModelText(CompletionOptions, frozen=True, kw_only=True):
    """Ask for the continuation of a text."""

    prompt: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]
    logprobs: Likely | bool | None = None
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    def wanted(self) -> Wanted:
        """Return what is asked of the model."""
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        return Wanted(
            self.sampling(-1 if self.logprobs is None or self.logprobs is False else self.logprobs),
            self.max_tokens or _TEXT_TOKENS,
            prompt=prompt,
            stops=self.stops,
            client=self.user or "",
            ignore_end=self.ignore_eos,
            program=True,
        )


def _call_schema(function: Function) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"const": function.name},
            "arguments": function.parameters or {"type": "object"},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _check_shallow(value: object, name: str) -> None:
    if not is_shallow(value):
        raise ValueError(f"`{name}` is nested more than {MOST_NESTED} levels deep")


def _arguments(text: str) -> Any:
    """Return a call's arguments as an object, which templates write in their own way."""
    try:
        found = msgspec.json.decode(text)
    except MALFORMED:
        return text
    return found if is_shallow(found) else text
