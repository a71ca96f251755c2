"""Render chats by the template in a model's folder, in a process of its own.

The template is a program that came with the model. Whatever it does, only its own process grows,
computes and ends: see `gpudeck.accel.serving.template_process` for its limits.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.accel.serving.families import read_json
from gpudeck.accel.serving.template_process import MOST_CPU_S
from gpudeck.language.text import phrase

MOST_SOURCE = 2**18
"""Characters of a template; the longest that are known have a tenth of that."""
_PATIENCE_S = 30.0
"""The time for an answer on a machine where others compute, too."""
_ADDED = ("bos_token", "eos_token", "pad_token", "unk_token")


class FolderTemplate:
    """Render chats by a process, which is started again where it ended. For several threads."""

    def __init__(self, source: str, tokens: Mapping[str, str]) -> None:
        """Compile a template.

        Args:
            source: In Jinja.
            tokens: The texts of special tokens by name, such as bos_token.

        Raises:
            ModelRefused: It is too long, or not a template, or takes too long to compile.
        """
        if len(source) > MOST_SOURCE:
            raise ModelRefused(
                phrase(
                    "the chat template has more than {most} characters",
                    most=MOST_SOURCE,
                )
            )
        self._program = {"source": source, "tokens": dict(tokens)}
        self._lock = threading.Lock()
        self._start()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        prompt: bool = True,
    ) -> str:
        """Return the prompt for the next message; see `Template.render`."""
        asked = {"messages": list(messages), "tools": list(tools), "prompt": prompt}
        with self._lock:
            if self._process.poll() is not None:
                self._start()
            answer = self._ask(asked)
        if "text" not in answer:
            raise RequestRefused(answer["refused"])
        return answer["text"]

    def _start(self) -> None:
        """Start the process, and let it compile the template. Raises ModelRefused."""
        # -P: files in the working directory must not be imported in place of our modules
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gpudeck.accel.serving.template_process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._end = weakref.finalize(self, _end, self._process)
        answer = self._ask(self._program)
        if "text" not in answer:
            self._end()
            raise ModelRefused(answer["refused"])

    def _ask(self, asked: Mapping[str, Any]) -> dict[str, str]:
        """Return the answer of the process; how it ended, if it gives none."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        impatient = threading.Timer(_PATIENCE_S, process.kill)
        impatient.start()
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            process.stdin.flush()
            if line := process.stdout.readline():
                answer: dict[str, str] = json.loads(line)
                return answer
        except OSError:
            pass  # it has ended
        finally:
            impatient.cancel()
        self._end()
        return {"refused": f"the model's chat template was stopped: {_reason(process.returncode)}"}


def load_template(folder: Path) -> FolderTemplate | None:
    """Return the chat template in a model's folder; None if it has none. Raises ModelRefused."""
    file, source = folder / "chat_template.jinja", None
    config: dict[str, Any] = {}
    if (folder / "tokenizer_config.json").is_file():
        config = read_json(folder / "tokenizer_config.json")
        source = config.get("chat_template")
        if isinstance(source, list):
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
    if file.is_file():
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise ModelRefused(
                phrase("cannot read {file}: {problem}", file=str(file), problem=f"{e!s:.200}")
            ) from e
    if not isinstance(source, str):
        return None
    tokens = {name: _text(config.get(name)) for name in _ADDED}
    return FolderTemplate(source, tokens)


def _text(token: object) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, unless the kernel has."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        process.stdin.close()
    except OSError:
        pass  # it did not read all of what it was sent


def _reason(status: int) -> str:
    if status == -signal.SIGPROF:
        return f"it computed for more than {MOST_CPU_S:.0f} s"
    if status == -signal.SIGKILL:
        return f"it gave no answer within {_PATIENCE_S:.0f} s"
    return f"its process ended with the status {status}"
