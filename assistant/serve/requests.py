"""Requests to the endpoint, as OpenAI's API reference defines them. Free of torch and Qt.

An option that changes what a client must do with the answer, such as several answers, is refused by
its name if it is not supported. Options that are notes of the client's are accepted and not used,
and named in a header of the answer.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec

from gpudeck.accel.serving.request import Sampling
from gpudeck.scheduler.protocol.errors import UserError

MAX_BODY = 2**20
"""Bytes."""
Count = Annotated[int, msgspec.Meta(ge=1, le=2**20)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
No = Literal[False]
MOST_NESTED = 128
"""Levels of objects and lists within a value: what passes it on goes down as deep."""
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


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hold the options of a streamed answer."""

    include_usage: bool = False
    include_obfuscation: No = False


class CompletionOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hold the options of both kinds of request.

    Of an option that cannot be changed, only the value that changes nothing is accepted.
    """

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(ge=1e-9, le=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Text | Annotated[list[Text], msgspec.Meta(max_length=8)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(ge=0.01, le=100)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, le=2**20)] | None = None
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    logit_bias: Annotated[dict[str, float], msgspec.Meta(max_length=0)] | None = None
    store: bool | None = None
    service_tier: str | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=16)] | None = None
    user: str | None = None
    """Among these, the one that was served least goes first."""
    ignore_eos: bool = False
    """An addition to OpenAI's: go on after the end of the text."""
    unused: ClassVar[tuple[str, ...]] = ("store", "service_tier", "metadata")
    """Options that are accepted and change nothing."""

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the options of the request that ask for something that is not done."""
        return tuple(
            name
            for name in self.unused
            if getattr(self, name) not in (None, False, "auto", "default")
        )

    @property
    def wants_usage(self) -> bool:
        """Return whether a stream ends with the counts of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling(self, logprobs: int) -> Sampling:
        """Return how tokens are chosen. If no seed is named, one is drawn."""
        return Sampling(
            1.0 if self.temperature is None else self.temperature,
            self.top_k or 0,
            1.0 if self.top_p is None else self.top_p,
            self.min_p or 0.0,
            self.repetition_penalty or 1.0,
            self.presence_penalty or 0.0,
            self.frequency_penalty or 0.0,
            secrets.randbits(32) if self.seed is None else self.seed,
            logprobs,
        )

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the texts that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def is_shallow(value: Any) -> bool:
    """Return whether a value of JSON has at most MOST_NESTED levels."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        boxes = [each for each in level if isinstance(each, dict | list)]
        level = [v for box in boxes for v in (box.values() if isinstance(box, dict) else box)]
    return not level


def parse(body: bytes, kind: type[R]) -> R:
    """Parse the body of a request. Raises RequestRefused, which names what is wrong."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        _, found, where = str(e).rpartition(" - at `$.")
        param = where.rstrip("`") if found else None
        raise RequestRefused(f"this request cannot be served: {e}", param=param) from e
