"""Find the calls of functions in an answer. Free of torch and Qt."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence

from gpudeck.assistant.completion import Call, Wanted

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)


def find_calls(text: str, wanted: Wanted) -> tuple[tuple[Call, ...], str]:
    """Return the calls of functions in an answer, and the text beside them.

    Models write them as JSON between <tool_call> marks, or alone.
    """
    tools = [tool["function"]["name"] for tool in wanted.tools]
    marked = _CALL.findall(text)
    found = [_call(part, tools) for part in marked or [text.strip()]]
    calls = tuple(call for call in found if call is not None)
    if not calls:
        return (), text
    return calls, _CALL.sub("", text).strip() if marked else ""


def _call(text: str, tools: Sequence[str]) -> Call | None:
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(made, dict) or made.get("name") not in tools:
        return None
    arguments = made.get("arguments", made.get("parameters", {}))
    return Call(made["name"], json.dumps(arguments), f"call_{uuid.uuid4().hex[:24]}")
