"""Run a function, a command or a prompt while nobody else needs the GPUs.

    import functools, gpudeck
    loss = gpudeck.run_when_idle(functools.partial(evaluate, "checkpoint.pt"), memory="8GiB")
    status = gpudeck.run_when_idle(["python", "nightly.py"])
    text = gpudeck.run_when_idle("Name three ways to save energy.")

A job of the queue that does so is `gpudeck.submit(["python", "nightly.py"], when_idle=True)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from gpudeck.language.text import Message
from gpudeck.scheduler.client import Client

R = TypeVar("R")
OnWait = Callable[[Message], None]


@overload
def run_when_idle(
    work: Callable[[], R], *, memory: int | str = ..., again: bool = ..., on_wait: OnWait = ...
) -> R: ...
@overload
def run_when_idle(work: str, *, on_wait: OnWait = ...) -> str: ...
@overload
def run_when_idle(
    work: list[str] | tuple[str, ...],
    *,
    memory: int | str = ...,
    again: bool = ...,
    on_wait: OnWait = ...,
) -> int: ...
def run_when_idle(work: Any, *, on_wait: OnWait = lambda reason: None, **options: Any) -> Any:
    """Run work once a GPU is idle, and leave it at once when anybody needs it.

    Args:
        work: A function or the words of a command, as `Client.run_when_idle` runs them, or a
            prompt for the assistant's model, which goes on with its text after each eviction.
        memory: What must be free on the GPU, such as 8GiB. A model takes what it needs.
        again: Begin a function or a command anew after its GPU was needed.
        on_wait: Called with what is waited for, whenever that changes.

    Returns:
        What the function returns, the exit status of the command, or the text of the model.

    Raises as `Client.run_when_idle` does; for a prompt, DaemonGone and UserError, as where no
    model is chosen.
    """
    if not isinstance(work, str):
        with Client() as daemon:
            return daemon.run_when_idle(work, on_wait=on_wait, **options)
    return _complete(work, on_wait)


def _complete(text: str, on_wait: OnWait) -> str:
    """Return what the model writes after a prompt, once the devices are idle."""
    from gpudeck.assistant.client import Assistant
    from gpudeck.assistant.engine.prompts import chat_request
    from gpudeck.assistant.host_protocol import Chunk, Event
    from gpudeck.assistant.idle import wait_until_idle

    pieces: list[str] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Chunk):
            pieces.append(event.text)
        else:
            on_wait(event.reason)

    with Client(timeout=None) as daemon:
        wait_until_idle(daemon.subscribe(live=False), on_wait=on_wait)
    request, _ = chat_request((text,))
    Assistant().complete(request, on_event)
    return "".join(pieces).strip()
