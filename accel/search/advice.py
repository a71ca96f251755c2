"""Ask a language model for configurations, at an endpoint that the user names.

The endpoint speaks the protocol of OpenAI's chat completions, as `gpudeck serve` does. It is sent
the space and what was measured, and answers with JSON that a schema binds: a list of
configurations. Nothing else of an answer is used, and no code of it runs.
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import msgspec

from gpudeck.accel.search.journal import Journal
from gpudeck.accel.search.space import Config, Space, key

_TOLD = 24
"""The fastest configurations, and the newest that failed, that the endpoint is told of."""
_INSTRUCTION = (
    "You tune a GPU kernel. Propose configurations that were not tried and that are likely to be"
    " faster than the best one. Answer with JSON only."
)


class _Answer(msgspec.Struct):
    configurations: list[dict[str, Any]]


class Advisor:
    """Ask an endpoint, and count what that takes."""

    def __init__(self, url: str, model: str, key: str = "", patience_s: float = 60.0) -> None:
        """Name an endpoint.

        Args:
            url: its base, such as `http://localhost:8000/v1`.
            model: the name of the model there.
            key: the secret that the endpoint asks for, if it does.
            patience_s: how long an answer may take.
        """
        self._url, self._model, self._key = url.rstrip("/"), model, key
        self._patience_s = patience_s
        self.seconds = 0.0
        self.tokens = 0
        """Of questions and answers, as the endpoint counts them."""
        self.failure = ""
        """What the last question failed by."""

    def propose(self, space: Space, journal: Journal, count: int) -> list[Config]:
        """Return up to `count` configurations of the space that were not tried.

        If the endpoint does not answer, or answers anything else, there are none, and `failure`
        says why.
        """
        begun = time.monotonic()
        try:
            said = self._asked(space, journal, count)
            self.failure = ""
        except (OSError, ValueError, LookupError, TypeError) as e:
            self.failure = f"{type(e).__name__}: {e}"
            said = []
        finally:
            self.seconds += time.monotonic() - begun
        known = journal.known
        fresh = {key(c): c for c in said if space.holds(c) and key(c) not in known}
        return list(fresh.values())[:count]

    def _asked(self, space: Space, journal: Journal, count: int) -> list[Config]:
        body = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": _INSTRUCTION},
                {"role": "user", "content": json.dumps(_described(space, journal, count))},
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "configurations", "strict": True, "schema": schema(space)},
            },
        }
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(  # noqa: S310 - the user names the endpoint
            f"{self._url}/chat/completions", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=self._patience_s) as answer:  # noqa: S310
            said = json.load(answer)
        self.tokens += int((said.get("usage") or {}).get("total_tokens", 0))
        content = said["choices"][0]["message"]["content"]
        return msgspec.json.decode(content, type=_Answer).configurations


def schema(space: Space) -> dict[str, Any]:
    """Return the JSON schema of an answer: a list of configurations of the space."""
    values = {name: {"enum": list(choices)} for name, choices in space.choices.items()}
    one = {
        "type": "object", "properties": values, "required": list(values),
        "additionalProperties": False,
    }  # fmt: skip
    listed = {"type": "array", "items": one}
    return {
        "type": "object", "properties": {"configurations": listed},
        "required": ["configurations"], "additionalProperties": False,
    }  # fmt: skip


def _described(space: Space, journal: Journal, count: int) -> dict[str, Any]:
    """Return what the endpoint is told."""
    failed = [e for e in journal.entries if e.state != "timed"][-_TOLD:]
    return {
        "propose": count,
        "problem": msgspec.to_builtins(journal.problem),
        "parameters": {name: list(values) for name, values in space.choices.items()},
        "measured": [{"config": c, "microseconds": us} for c, us in journal.timed[:_TOLD]],
        "failed": [{"config": e.config, "state": e.state, "why": str(e.why)[:80]} for e in failed],
    }
