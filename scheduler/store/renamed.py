"""Rewrite commands of jobs that start our modules by the names that they had before 0.2."""

from __future__ import annotations

from typing import Any

import msgspec

_WORKLOADS = ("accel.workloads.", "assistant.workloads.")
_LINKED_SCRIPT = "accel.inject.script"


def renamed(spec: bytes) -> bytes:
    """Return the JSON of a Spec whose command names our modules as they are called now.

    A job of a user whose own package is called `app` or `accel` is left as it is: only what we
    wrote ourselves is rewritten, which is `python -P -m app serve ...`, our workloads, and the
    module that runs a script with its attention linked. JSON that cannot be read is returned as
    it is.
    """
    try:
        found: dict[str, Any] = msgspec.json.decode(spec, type=dict[str, Any])
        argv = [str(word) for word in found["argv"]]
    except (msgspec.DecodeError, KeyError, TypeError):
        return spec
    new = [_new_name(argv, place) for place in range(len(argv))]
    return spec if new == argv else msgspec.json.encode(found | {"argv": new})


def _new_name(argv: list[str], place: int) -> str:
    word, before = argv[place], argv[max(0, place - 2) : place]
    if before[-1:] == ["-m"]:
        if word == "app" and before == ["-P", "-m"] and argv[place + 1 : place + 2] == ["serve"]:
            return "gpudeck"
        if word.startswith(_WORKLOADS) or word == _LINKED_SCRIPT:
            return f"gpudeck.{word}"
    return word
