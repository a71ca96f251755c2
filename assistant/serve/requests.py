"""Requests to the endpoint, as OpenAI's API reference defines them. Free of torch and Qt.

An option that changes what a client must do with the answer, such as tools or several answers, is
refused by its name if it is not supported. Options that only shade the sampling, or that are notes
of the client's, are accepted and not used, and named in a header of the answer.
"""

from __future__ import annotations

import secrets
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec

from assistant.engine.prompts import STOP, Speaker, conversation
from assistant.messages import MAX_COMPLETION_TOKENS, CompletionRequest, DeviceChoice
from scheduler.protocol.errors import UserError

MAX_BODY = 2**20
"""Bytes."""
_CHAT_TOKENS, _TEXT_TOKENS = 512, 16
"""Tokens if a request names no limit; 16 is the reference's default."""
_SPEAKERS: dict[str, Speaker] = {
    "system": "System",
    "developer": "System",
    "user": "User",
    "assistant": "Assistant",
}

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COMPLETION_TOKENS)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
No = Literal[False]
R = TypeVar("R", bound="CompletionOptions")


class RequestRefused(UserError):
    """Signal a request that cannot be served, with the HTTP status and the parameter at fault."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class TextPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold a part of a message; only text is supported."""

    text: str
    type: Literal["text"] = "text"


class ChatMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold one message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None
    """None: a message of the assistant without text, as other programs have it."""
    name: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None

    def __post_init__(self) -> None:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"`content` is null in a message of the role {self.role}")

    @property
    def text(self) -> str:
        """Return the content as one text."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content or ())


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the options of a streamed answer."""

    include_usage: bool = False
    include_obfuscation: No = False


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the format of an answer; only text is supported."""

    type: Literal["text"]


class CompletionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hold the options of both kinds of request.

    Of an option that cannot be changed, only the value that changes nothing is accepted.
    """

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Text | Annotated[list[Text], msgspec.Meta(max_length=8)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    logprobs: No | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(max_length=0)] | None = None
    store: bool | None = None
    service_tier: str | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=16)] | None = None
    user: str | None = None
    """Sent by some clients, and not used here."""
    unused: ClassVar[tuple[str, ...]] = (
        "presence_penalty", "frequency_penalty", "repetition_penalty", "top_k", "min_p", "store",
        "service_tier", "metadata",
    )  # fmt: skip
    """Options that are accepted and change nothing."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the options of the request that ask for something that is not done."""
        return tuple(
            name
            for name in self.unused
            if (value := getattr(self, name)) not in (None, 0, False, "auto", "default")
            and not (name == "repetition_penalty" and value == 1)
        )

    @property
    def wants_usage(self) -> bool:
        """Return whether a stream ends with the counts of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def to_completion(
        self, prompt: str, limit: int, stops: tuple[str, ...], device: DeviceChoice
    ) -> CompletionRequest:
        """Return the request to the assistant. If no seed is named, one is drawn."""
        more = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return CompletionRequest(
            prompt,
            limit,
            1.0 if self.temperature is None else self.temperature,
            1.0 if self.top_p is None else self.top_p,
            secrets.randbits(32) if self.seed is None else self.seed,
            stops + more,
            device=device,
            program=True,
        )


class ChatRequest(CompletionOptions, frozen=True):
    """Ask for the next message of a chat."""

    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=1000)]
    max_completion_tokens: Count | None = None
    response_format: TextFormat | None = None
    top_logprobs: Literal[0] | None = None
    modalities: Annotated[list[Literal["text"]], msgspec.Meta(max_length=1)] | None = None
    tool_choice: Literal["none"] | None = None
    tools: None = None
    functions: None = None
    function_call: Literal["none"] | None = None
    audio: None = None
    prediction: None = None

    def complete(self, device: DeviceChoice) -> CompletionRequest:
        """Return the request to the assistant."""
        prompt = conversation([(_SPEAKERS[turn.role], turn.text) for turn in self.messages])
        limit = self.max_completion_tokens or self.max_tokens or _CHAT_TOKENS
        return self.to_completion(prompt, limit, (STOP,), device)


class TextRequest(CompletionOptions, frozen=True):
    """Ask for the continuation of a text."""

    prompt: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]
    echo: No | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    def complete(self, device: DeviceChoice) -> CompletionRequest:
        """Return the request to the assistant."""
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        return self.to_completion(prompt, self.max_tokens or _TEXT_TOKENS, (), device)


def parse(body: bytes, kind: type[R]) -> R:
    """Parse the body of a request. Raises RequestRefused, which names what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        _, found, where = str(e).rpartition(" - at `$.")
        param = where.rstrip("`") if found else None
        raise RequestRefused(f"this request cannot be served: {e}", param=param) from e
