"""Measure how long a person waits for the assistant while programs use its model.

    python -m tests.benchmarks.assistant_preemption MODEL

A real daemon and the assistant's process with an RWKV-7 model on one CPU thread. Eight programs
ask for long answers to long prompts that never begin alike, without a pause. Meanwhile a person
asks a question, and for texts of the model; both are also measured without the programs. The rows
go to results/assistant_preemption.csv: milliseconds to the first text, and tokens a second of one
text that has the model to itself.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.client import Assistant
from gpudeck.assistant.completion import Wanted
from gpudeck.assistant.host_protocol import Chunk, CompletionRequest, Event
from gpudeck.assistant.idle import Cancelled
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.cpu import cpu_name
from tests.benchmarks.rows import context, spread, write

PROGRAMS, ROUNDS, TOKENS = 8, 40, 256
_NUMBERS = itertools.count()


def main() -> None:
    """Measure, and write the rows."""
    model = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        with Client() as daemon:
            daemon.configure(source="cpu", model_folder=model)
        try:
            rows = list(_rows(model))
        finally:
            with Client() as daemon:
                daemon.stop_daemon()
    where = context(cpu_name(), ["torch", "numba"])
    print(write("assistant_preemption", [row | where for row in rows]))


def _rows(model: str) -> Iterator[dict[str, object]]:
    Assistant().benchmark(model)  # waits until its code is compiled
    yield _row("alone", "one text", "tokens/s", [_speed() for _ in range(ROUNDS // 4)])
    for load in ("alone", f"{PROGRAMS} programs"):
        with nullcontext() if load == "alone" else _programs():
            yield _row(load, "a question", "ms to the first text", _measured(_question))
            yield _row(load, "a text", "ms to the first text", _measured(_text))


def _measured(once: Callable[[], float]) -> list[float]:
    once()
    return [once() for _ in range(ROUNDS)]


def _row(load: str, what: str, unit: str, values: list[float]) -> dict[str, object]:
    print(load, what, unit, spread(values))
    return {"load": load, "what": what, "unit": unit, **spread(values)}


def _prompt(words: int) -> str:
    return f"{next(_NUMBERS)} " + "the queue holds jobs and the devices compute them. " * words


def _speed() -> float:
    """Return the tokens a second of one greedy text, with its prompt."""
    wanted = Wanted(limit=TOKENS, prompt=_prompt(1), ignore_end=True)
    began = time.perf_counter()
    Assistant().complete(CompletionRequest(wanted))
    return TOKENS / (time.perf_counter() - began)


def _question() -> float:
    return _until_text(lambda on_event: Assistant().ask("how busy is the CPU?", on_event=on_event))


def _text() -> float:
    wanted = Wanted(limit=8, prompt=_prompt(1), ignore_end=True)
    return _until_text(lambda e: Assistant().complete(CompletionRequest(wanted), e))


def _until_text(work) -> float:
    """Return the milliseconds until the first text."""
    came: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Chunk) and not came:
            came.append(time.perf_counter())

    began = time.perf_counter()
    work(on_event)
    return 1e3 * (came[0] - began)


@contextmanager
def _programs() -> Iterator[None]:
    """Keep eight programs busy with prompts of about 2,000 tokens and answers of 200."""
    assistants, ending = [Assistant() for _ in range(PROGRAMS)], threading.Event()

    def work(assistant: Assistant) -> None:
        while not ending.is_set():
            wanted = Wanted(Sampling(seed=1), 200, prompt=_prompt(200), program=True)
            with suppress(Cancelled):
                assistant.complete(CompletionRequest(wanted))

    threads = [threading.Thread(target=work, args=(each,)) for each in assistants]
    for thread in threads:
        thread.start()
    time.sleep(3.0)
    yield
    ending.set()
    for assistant in assistants:
        assistant.cancel()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
