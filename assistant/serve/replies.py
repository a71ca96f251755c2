"""Replies of the endpoint in the shapes of OpenAI's API reference. Free of torch and Qt."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from assistant.messages import Completion

_ENCODE = msgspec.json.Encoder().encode
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ReplyFormat:
    """Encode one answer in the shape of a chat or of a text completion."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model, self._chat = model, chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def whole(self, text: str, result: Completion) -> bytes:
        """Encode an answer that is not streamed."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            content = {"message": {"role": "assistant", "content": text, "refusal": None}}
        kind = "chat.completion" if self._chat else "text_completion"
        head = self._head(kind, result.device)
        return _ENCODE({**head, **_choice(content, result.reason), "usage": _usage(result)})

    def piece(self, text: str, device: str, *, first: bool) -> bytes:
        """Encode a piece of a stream."""
        role = {"role": "assistant"} if first else {}
        content = {"delta": {**role, "content": text}} if self._chat else {"text": text}
        return _event({**self._stream_head(device), **_choice(content, None)})

    def end(self, result: Completion, *, with_usage: bool) -> bytes:
        """Encode the last pieces of a stream."""
        head = self._stream_head(result.device)
        content: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        last = _event({**head, **_choice(content, result.reason)})
        if with_usage:
            last += _event({**head, "choices": [], "usage": _usage(result)})
        return last + b"data: [DONE]\n\n"

    def _stream_head(self, device: str) -> dict[str, Any]:
        return self._head("chat.completion.chunk" if self._chat else "text_completion", device)

    def _head(self, kind: str, device: str) -> dict[str, Any]:
        head = {"id": self._id, "object": kind, "created": self._created, "model": self._model}
        return {**head, "system_fingerprint": f"gpudeck-{device}"}


def models(names: list[str]) -> bytes:
    """Encode the list of models."""
    return _ENCODE({"object": "list", "data": [_model(name) for name in names]})


def model(name: str) -> bytes:
    """Encode one model."""
    return _ENCODE(_model(name))


def error(status: int, message: str, param: str | None = None, code: str | None = None) -> bytes:
    """Encode an error."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    content = {"message": message, "type": _ERROR_TYPES.get(status, kind)}
    return _ENCODE({"error": {**content, "param": param, "code": code}})


def error_event(status: int, message: str, code: str | None = None) -> bytes:
    """Encode an error within a stream, which ends with it."""
    return b"data: " + error(status, message, code=code) + b"\n\n"


def comment(text: str) -> bytes:
    """Encode a line of a stream that clients skip, as a sign of life."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


def _choice(content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, "logprobs": None, **content}
    return {"choices": [choice]}


def _usage(result: Completion) -> dict[str, int]:
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.tokens,
        "total_tokens": result.prompt_tokens + result.tokens,
    }


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + _ENCODE(content) + b"\n\n"


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gpudeck"}
