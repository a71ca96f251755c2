"""What is asked at the endpoint, as OpenAI's API reference has it, and what that means for the model. Free of torch and Qt.

What is not understood is refused by name, never passed over: a client that asks for tools or several answers is to know that it gets none.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Literal, TypeVar

import msgspec

from assistant.engine.prompts import STOP, Speaker, conversation
from assistant.messages import MAX_COMPLETION_TOKENS, CompletionRequest, DeviceChoice
from scheduler.protocol.errors import UserError

CHAT_TOKENS, TEXT_TOKENS = 512, 16
"""Tokens where none are named; 16 is the reference's."""
MAX_BODY = 2**20
"""Bytes."""

_SPEAKERS: dict[str, Speaker] = {
    "system": "System",
    "developer": "System",
    "user": "User",
    "assistant": "Assistant",
}

Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
TopP = Annotated[float, msgspec.Meta(gt=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COMPLETION_TOKENS)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Zero = Annotated[float, msgspec.Meta(ge=0, le=0)]
No = Literal[False]
Stop = Text | Annotated[list[Text], msgspec.Meta(max_length=8)] | None


R = TypeVar("R", bound="Common")


class Refusal(UserError):
    """A request that cannot be served as it is: a line, and where there is one the parameter at fault."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    type: Literal["text"] = "text"


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None
    """None: the assistant said nothing, as its messages have it in other programs."""
    name: str | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    audio: None = None

    def __post_init__(self) -> None:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"`content` is null in a message of the role {self.role}")


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: No = False


class Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["text"]


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What both kinds of request may have. Of what is fixed only the value that changes nothing is understood."""

    model: str
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    stop: Stop = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logprobs: No | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(max_length=0)] | None = None
    store: No | None = None
    service_tier: Literal["auto", "default"] | None = None
    metadata: None = None
    user: str | None = None
    """Told by some clients; nobody here needs it."""

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with what it used."""
        return self.stream_options is not None and self.stream_options.include_usage

    def asked(
        self, prompt: str, limit: int, stops: tuple[str, ...], device: DeviceChoice
    ) -> CompletionRequest:
        """For the model. A seed that is not named is drawn."""
        given = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return CompletionRequest(
            prompt,
            limit,
            1.0 if self.temperature is None else self.temperature,
            1.0 if self.top_p is None else self.top_p,
            secrets.randbits(32) if self.seed is None else self.seed,
            stops + given,
            device=device,
            program=True,
        )


class Chat(Common, frozen=True):
    messages: Annotated[list[Turn], msgspec.Meta(min_length=1, max_length=1000)]
    max_completion_tokens: Count | None = None
    response_format: Format | None = None
    top_logprobs: Literal[0] | None = None
    modalities: Annotated[list[Literal["text"]], msgspec.Meta(max_length=1)] | None = None
    tool_choice: Literal["none"] | None = None
    tools: None = None
    functions: None = None
    function_call: Literal["none"] | None = None
    audio: None = None
    prediction: None = None

    def complete(self, device: DeviceChoice) -> CompletionRequest:
        turns = [(_SPEAKERS[turn.role], _plain(turn.content)) for turn in self.messages]
        return self.asked(
            conversation(turns),
            self.max_completion_tokens or self.max_tokens or CHAT_TOKENS,
            (STOP,),
            device,
        )


class Prose(Common, frozen=True):
    prompt: str | Annotated[list[str], msgspec.Meta(min_length=1, max_length=1)]
    echo: No | None = None
    best_of: Literal[1] | None = None
    suffix: None = None

    def complete(self, device: DeviceChoice) -> CompletionRequest:
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        return self.asked(prompt, self.max_tokens or TEXT_TOKENS, (), device)


def parse(body: bytes, kind: type[R]) -> R:
    """Raises Refusal, naming what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        where = str(e).rpartition(" - at `$.")[2].rstrip("`") if " - at `$." in str(e) else None
        raise Refusal(f"this request cannot be served: {e}", param=where) from e


def _plain(content: str | list[Part] | None) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content or ())
