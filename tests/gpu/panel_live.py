"""The assistant panel on a GPU while jobs come and go: the real window offscreen, the real
daemon, real jobs, the model that ships.

    python -m tests.gpu.panel_live [--questions 12] [--device cuda] [--out DIR]

One question after another, while every few seconds a job takes the GPU for itself and the assistant
must leave it. Writes panel_live.csv, a row a question: where it was answered, by whom, how long it
waited for the GPU and took; and a picture of the panel each time something is to be seen: writing,
waiting for the GPU, the conversation at its end, light and dark. Exit status 1 where a question
stayed without an answer or a job did not end well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from gpudeck.app.tour.session import Session
from gpudeck.app.widgets import theme
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.protocol.settings import Settings
from tests.benchmarks.rows import RESULTS, context, write
from tests.support import eventually, state_folder

QUESTIONS = (
    "what runs now?",
    "how much memory is free?",
    "why did job 1 fail?",
    "how hot is the GPU?",
    "is the machine busy?",
    "how is job 2?",
)
ANSWER_S, JOB_S, PAUSE_S = 90.0, 2.0, 4.0
_HOLD = f"""
import time
try:
    import torch
    kept = torch.empty(2**28, device="cuda") if torch.cuda.is_available() else None
except ImportError:
    pass
time.sleep({JOB_S})
"""


class Jobs(threading.Thread):
    """Submits one job after another that has the GPU for JOB_S, each PAUSE_S after the one
    before has ended, until `stop`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended: list[Job] = []
        self._over = threading.Event()

    def run(self) -> None:
        with Client() as deck:
            while not self._over.wait(PAUSE_S):
                job = deck.submit([sys.executable, "-c", _HOLD], name="takes the GPU", gpus=1)
                self.ended.append(deck.wait(job.id, 120.0))

    def stop(self) -> None:
        self._over.set()
        self.join()


def answered(session: Session, question: str, number: int, out: Path) -> dict[str, object]:
    """Ask it in the panel, and look until it is answered."""
    view = session.window.assistant.view
    conversation = view.conversation
    began, first, waited, last = time.monotonic(), 0.0, 0.0, time.monotonic()
    seen: set[str] = set()
    view.ask(question)

    def look() -> bool:
        nonlocal first, waited, last
        now, writing = time.monotonic(), conversation.writing
        if writing is None:
            return True
        if writing.state == "writing" and writing.text and not first:
            first = now - began
        if writing.state == "waiting" and writing.cpu:
            waited += now - last
        last = now
        kind = (
            "waiting"
            if writing.state == "waiting" and writing.cpu
            else "writing"
            if writing.text
            else ""
        )
        if kind and kind not in seen:
            seen.add(kind)
            session.window.grab().save(str(out / f"panel-live-{number:02}-{kind}.png"))
        return False

    session.until(look, ANSWER_S)
    said = conversation.messages[-1]
    return {
        "question": question,
        "state": said.state,
        "device": said.device,
        "writer": said.writer,
        "tokens": said.tokens,
        "first_text_s": f"{first:.2f}" if first else "",
        "waited_for_gpu_s": f"{waited:.2f}",
        "seconds": f"{time.monotonic() - began:.2f}",
    }


def live(questions: int, out: Path) -> tuple[list[dict[str, object]], list[Job]]:
    with Session() as session, Client() as deck:
        eventually(
            lambda: (found := deck.snapshot().devices) and all(state.reading for state in found),
            60.0,
        )
        deck.wait(deck.submit(["sh", "-c", "echo no such file >&2; exit 3"], gpus=0).id, 60.0)
        session.until(lambda: session.window.state.link.connected, 30.0)
        session.window.show_page("assistant")
        session.spin(1.0)
        jobs = Jobs()
        jobs.start()
        rows = []
        for number in range(questions):
            rows.append(answered(session, QUESTIONS[number % len(QUESTIONS)], number, out))
            print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
            session.spin(0.5)
        jobs.stop()
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        for scheme in ("light", "dark"):
            theme.apply(app, scheme)
            session.picture(out / f"panel-live-end-{scheme}.png")
        return rows, jobs.ended


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.panel_live", description=__doc__.partition("\n\n")[0]
    )
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument(
        "--device", default="cuda", help="the assistant's: auto, cuda or cpu (default: cuda)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as base, state_folder(Path(base) / "home"):
        settings.save(Settings(model_device=args.device, idle_dwell_s=0.5, idle_util_percent=20.0))
        rows, jobs = live(args.questions, args.out)
        with Client() as deck:
            device = deck.snapshot().devices[0].device.name
    print(write("panel_live", [{**row, **context(device, ["torch"])} for row in rows], args.out))
    good = sum(isinstance(job.state, Done) for job in jobs)
    print(
        f"{sum(row['state'] == 'done' for row in rows)} of {len(rows)} questions answered; {good}"
        f" of {len(jobs)} jobs done"
    )
    return 0 if good == len(jobs) and all(row["state"] == "done" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
