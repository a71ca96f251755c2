"""Replies of the endpoint in the shapes of OpenAI's API reference. Free of torch and Qt."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from gpudeck.assistant.completion import Call, Token
from gpudeck.assistant.host_protocol import Completion

_ENCODE = msgspec.json.Encoder().encode
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ReplyFormat:
    """Encode one answer in the shape of a chat or of a text completion."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model, self._chat = model, chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def whole(self, text: str, result: Completion, tokens: tuple[Token, ...] = ()) -> bytes:
        """Encode an answer that is not streamed."""
        content: dict[str, Any] = {"text": text}
        if self._chat:
            message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
            if result.calls:
                calls = list(map(_call, result.calls))
                message |= {"content": text or None, "tool_calls": calls}
            content = {"message": message}
        kind = "chat.completion" if self._chat else "text_completion"
        head, content = self._head(kind, result.device), {**content, **self._logprobs(tokens)}
        return _ENCODE({**head, **_choice(content, _reason(result)), "usage": _usage(result)})

    def piece(
        self, text: str, device: str, tokens: tuple[Token, ...] = (), *, first: bool
    ) -> bytes:
        """Encode a piece of a stream."""
        role = {"role": "assistant"} if first else {}
        content = {"delta": {**role, "content": text}} if self._chat else {"text": text}
        content |= self._logprobs(tokens)
        return _event({**self._stream_head(device), **_choice(content, None)})

    def _logprobs(self, tokens: tuple[Token, ...]) -> dict[str, Any]:
        """Return the probabilities of tokens, in the shape of each kind of answer."""
        if not tokens:
            return {}
        if self._chat:
            return {"logprobs": {"content": [_logprob(token) for token in tokens]}}
        found = {"tokens": [token.text for token in tokens]}
        each = {"token_logprobs": [token.logprob for token in tokens]}
        return {"logprobs": {**found, **each, "top_logprobs": [dict(t.likely) for t in tokens]}}

    def end(self, result: Completion, *, with_usage: bool) -> bytes:
        """Encode the last pieces of a stream."""
        head = self._stream_head(result.device)
        content: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        if result.calls:
            numbered = [{"index": i, **_call(call)} for i, call in enumerate(result.calls)]
            content = {"delta": {"tool_calls": numbered}}
        last = _event({**head, **_choice(content, _reason(result))})
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


def _usage(result: Completion) -> dict[str, Any]:
    used: dict[str, Any] = {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.tokens,
        "total_tokens": result.prompt_tokens + result.tokens,
    }
    used["prompt_tokens_details"] = {"cached_tokens": result.cached_tokens}
    accepted = {"accepted_prediction_tokens": result.accepted_tokens}
    used["completion_tokens_details"] = accepted
    return used


def _reason(result: Completion) -> str:
    return "tool_calls" if result.calls else result.reason


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _logprob(token: Token) -> dict[str, Any]:
    def entry(text: str, logprob: float) -> dict[str, Any]:
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    likely = [entry(text, logprob) for text, logprob in token.likely]
    return {**entry(token.text, token.logprob), "top_logprobs": likely}


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + _ENCODE(content) + b"\n\n"


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "gpudeck"}
