"""Measure what a streamed piece of an answer costs the assistant's page.

    python -m tests.benchmarks.panel

This is the CPU time of the window's process, with few and with 1,000 messages. The window is real,
but offscreen. Every piece is delivered, laid out and painted before the next one arrives; in use,
pieces that arrive within 50 ms of each other are drawn together. The rows go to results/panel.csv:
one for each length of the conversation, in milliseconds.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")


from gpudeck.app.assistant.conversation import Conversation
from gpudeck.app.assistant.requests import Ask, FinishedAnswer
from gpudeck.app.link.call import Call
from gpudeck.app.link.link import Link
from gpudeck.app.shell.window import MainWindow
from gpudeck.app.widgets import theme
from gpudeck.assistant.host_protocol import Chunk
from gpudeck.scheduler.devices.cpu import cpu_name
from tests.benchmarks.rows import context, spread, write

LENGTHS = (10, 1000)
PIECES, WARM_UP = 200, 20
ANSWER = (
    "GPU 0 was at most **66 °C**.\n\n| Job | State |\n|---|---|\n| 7 | done |\n\n- one\n- two\n"
)
FACTS = tuple((f"GPU 0 reading {i}", "66 °C", "NVML readings") for i in range(40))


class RecordingLink(Link):
    """Keeps what the window sends and carries nothing out."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def start(self, call: Call) -> None:
        self.calls.append(call)


def measure(length: int) -> dict[str, float]:
    """Return the CPU milliseconds of a piece, and the number of message widgets."""
    app = theme.application()
    theme.apply(app, "light")
    link = RecordingLink()
    window = MainWindow(link)
    window.show_link(True, "connected")
    window.show()
    window.show_page("assistant")
    view = window.assistant.view
    view.open(_conversation(length))
    view.ask("and now?")
    (call,) = (c for c in link.calls if isinstance(c.request, Ask))
    app.processEvents()
    spent = []
    for i in range(PIECES + WARM_UP):
        begin = time.process_time()
        call.progress(Chunk("word " if i % 12 else "word.\n\n"))
        view.refresh()
        app.processEvents()
        spent.append((time.process_time() - begin) * 1e3)
    views = len(view.messages.views)
    window.close()
    return {**spread(spent[WARM_UP:]), "views": views}


def _conversation(length: int) -> Conversation:
    made = Conversation()
    for i in range(length // 2):
        made.answered(
            FinishedAnswer(ANSWER * (1 + i % 3), "model tiny", FACTS), made.ask(f"question {i}?")
        )
    return made


def main() -> None:
    where = context(cpu_name(), ["PySide6-Essentials"])
    rows = [
        {
            "messages": length,
            "what": "CPU time of a streamed piece",
            "unit": "ms",
            **measure(length),
            **where,
        }
        for length in LENGTHS
    ]
    for row in rows:
        print(
            f"{row['messages']} messages: {row['median']} ms (P95 {row['p95']}), "
            f"{row['views']} views"
        )
    print(write("panel", rows))


if __name__ == "__main__":
    main()
