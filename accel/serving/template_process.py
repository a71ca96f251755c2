"""Render chats by a template that others wrote, in a process with little memory and time.

    python -m gpudeck.accel.serving.template_process

It reads JSON, one value a line: first {"source", "tokens"}, then chats as {"messages", "tools",
"prompt"}. It answers each line by {"text"} or {"refused"}, and ends with its standard input. The
kernel ends it where it computes for too long.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

from gpudeck.accel.serving.errors import ModelRefused, RequestRefused
from gpudeck.accel.serving.template import ChatTemplate

MOST_CPU_S = 1.0
"""The CPU time for one chat, and for compiling the template."""
MOST_MEMORY = 512 * 2**20
"""Bytes of address space; Python and Jinja take less than a tenth."""
MOST_TEXT = 2**22
"""Characters of a rendered chat: four times the largest request to the endpoint."""


def main() -> None:
    """Answer chats until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends who started this, and then this
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # it has no file to write
    template: ChatTemplate | None = None
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
        try:
            if template is None:
                template = ChatTemplate(asked["source"], asked["tokens"])
                answer = {"text": ""}
            else:
                answer = {"text": _rendered(template, asked)}
        except (ModelRefused, RequestRefused) as e:
            answer = {"refused": str(e)}
        except MemoryError:
            answer = {
                "refused": "the model's chat template was stopped: it needs more than "
                f"{MOST_MEMORY >> 20} MiB of memory"
            }
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _rendered(template: ChatTemplate, asked: dict[str, Any]) -> str:
    text = template.render(asked["messages"], asked["tools"], prompt=asked["prompt"])
    if len(text) > MOST_TEXT:
        raise RequestRefused(
            f"the model's chat template was stopped: it wrote more than {MOST_TEXT} characters"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestRefused("the model's chat template wrote text that is not Unicode") from None
    return text


if __name__ == "__main__":
    main()
