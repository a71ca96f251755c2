"""What the endpoint answers, in the shapes of OpenAI's API reference. Free of torch and Qt."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from assistant.messages import Completion

_ENCODE = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"


class ReplyFormat:
    """One answer, in the shape of a chat or of a plain completion."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model, self._chat = model, chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def whole(self, text: str, done: Completion) -> bytes:
        choice: dict[str, Any] = {"index": 0, "finish_reason": done.reason, "logprobs": None}
        choice |= (
            {"message": {"role": "assistant", "content": text, "refusal": None}}
            if self._chat
            else {"text": text}
        )
        kind = "chat.completion" if self._chat else "text_completion"
        return _ENCODE({**self._head(kind, done.device), "choices": [choice], "usage": usage(done)})

    def piece(self, text: str, device: str, *, first: bool) -> bytes:
        role = {"role": "assistant"} if first else {}
        return self._event(
            {"delta": {**role, "content": text}} if self._chat else {"text": text}, None, device
        )

    def end(self, done: Completion, *, with_usage: bool) -> bytes:
        """The last pieces of a stream."""
        last = self._event({"delta": {}} if self._chat else {"text": ""}, done.reason, done.device)
        if with_usage:
            last += _event(
                {**self._head(self._kind, done.device), "choices": [], "usage": usage(done)}
            )
        return last + DONE

    @property
    def _kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _event(self, what: dict[str, Any], reason: str | None, device: str) -> bytes:
        choice = {"index": 0, "finish_reason": reason, "logprobs": None, **what}
        return _event({**self._head(self._kind, device), "choices": [choice]})

    def _head(self, kind: str, device: str) -> dict[str, Any]:
        head = {"id": self._id, "object": kind, "created": self._created, "model": self._model}
        return {**head, "system_fingerprint": f"gpudeck-{device}"}


def usage(done: Completion) -> dict[str, int]:
    return {
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.tokens,
        "total_tokens": done.prompt_tokens + done.tokens,
    }


def models(names: list[str]) -> bytes:
    return _ENCODE({"object": "list", "data": [_model(name) for name in names]})


def model(name: str) -> bytes:
    return _ENCODE(_model(name))


def error(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return _ENCODE({"error": {"message": message, "type": kind, "param": param, "code": code}})


def error_event(status: int, message: str, code: str | None = None) -> bytes:
    """An error in the middle of a stream, which ends with it."""
    return b"data: " + error(status, message, code=code) + b"\n\n"


def comment(text: str) -> bytes:
    """A line of a stream that clients pass over: a sign of life."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + _ENCODE(content) + b"\n\n"


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gpudeck"}
