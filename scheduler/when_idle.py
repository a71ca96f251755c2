"""Run a function or a command on a GPU while nobody else needs it.

The work runs in a process of its own, as only the end of a process frees all of its GPU memory. It
waits until a GPU is idle, and is ended at once when a job or another program needs that GPU. Then
it begins anew with the next idle GPU, so long work should continue from checkpoints of its own.
"""

from __future__ import annotations

import multiprocessing.spawn
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from gpudeck.language.text import Message, joined, phrase
from gpudeck.scheduler.protocol import busy_causes
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.snapshot import Busy, Snapshot
from gpudeck.scheduler.protocol.units import parse_size

Work = Callable[[], Any] | Sequence[str]
_AGAIN_S = 1.0
"""The time after which a GPU is asked for again that seemed idle and was not lent."""


class Outcome(msgspec.Struct, frozen=True):
    """Say how an attempt ended."""

    kind: Literal["refused", "evicted", "returned", "raised"]
    value: Any = None
    """The reason, what the work returned, or the exception that it raised."""


class Interrupted(UserError):
    """Report that the work had to leave its GPU, and shall not begin anew."""


def run_when_idle(
    work: Work,
    snapshots: Callable[[], Iterator[Snapshot]],
    memory: int | str,
    again: bool,
    on_wait: Callable[[Message], None],
) -> Any:
    """Run work on an idle GPU, and return what the function returns or the command's exit status.

    Args:
        snapshots: Returns the daemon's snapshots, as they come.

    For the rest, see `gpudeck.scheduler.client.Client.run_when_idle`.
    """
    needed = parse_size(memory)
    told: list[Message] = []

    def tell(reason: Message) -> None:
        if told[-1:] != [reason]:
            told.append(reason)
            on_wait(reason)

    while True:
        _wait_for_idle_gpu(snapshots(), tell)
        outcome = _attempt(work, needed)
        match outcome.kind:
            case "returned":
                return outcome.value
            case "raised":
                raise outcome.value
            case "evicted" if not again:
                raise Interrupted(phrase("the GPU was needed: {why}", why=outcome.value))
            case "evicted":
                tell(phrase("the GPU was needed: {why}", why=outcome.value))
            case "refused":
                tell(outcome.value)
        time.sleep(_AGAIN_S)


def _wait_for_idle_gpu(snapshots: Iterator[Snapshot], tell: Callable[[Message], None]) -> None:
    for snapshot in snapshots:
        why = why_no_gpu(snapshot)
        if why is None:
            return
        tell(why)
    raise DaemonGone(phrase("the daemon stopped while the work waited for an idle GPU"))


def why_no_gpu(snapshot: Snapshot) -> Message | None:
    """Return why no GPU can be lent now, or None if one is idle.

    Raises:
        UserError: No NVIDIA GPU is watched here.
    """
    gpus = [state for state in snapshot.devices if state.device.kind == "nvidia"]
    if snapshot.devices and not gpus:
        raise UserError(
            phrase(
                "no NVIDIA GPU is watched here, and this work needs one. A job can wait until the "
                "CPU is idle instead: {command}",
                command="gpudeck submit --when-idle",
            )
        )
    reasons: list[Message] = []
    for state in gpus:
        if state.leased:
            why = busy_causes.explain(busy_causes.Lent())
        elif isinstance(state.use, Busy):
            why = state.use.reason
        else:
            return None
        reasons.append(phrase("{device}: {why}", device=state.device.name, why=why))
    if not reasons:
        return phrase("no device has been read yet")
    return phrase("{text}", text=joined(reasons, "; "))


def _attempt(work: Work, memory: int) -> Outcome:
    """Run the work in processes that hold a GPU, and return how it ended."""
    with tempfile.TemporaryFile() as result:
        if callable(work):
            preparation = multiprocessing.spawn.get_preparation_data("idle work")
            del preparation["authkey"]  # a secret, which is not needed
            words = [sys.executable, "-m", "gpudeck.scheduler.idle_function", str(result.fileno())]
            order = pickle.dumps(preparation) + pickle.dumps(work)
        else:
            words, order = list(work), b""
        outcome = _hold(memory, words, order, result.fileno())
        if outcome.kind != "returned" or not callable(work):
            return outcome
        result.seek(0)
        if answer := result.read():
            found: Outcome = pickle.loads(answer)  # noqa: S301 (of our own process)
            return found
    status = str(outcome.value)
    return Outcome(
        "raised", UserError(phrase("the process of the work ended with {status}", status=status))
    )


def _hold(memory: int, words: Sequence[str], order: bytes, result: int) -> Outcome:
    """Start the process that holds a GPU and runs the words, and return what it reports."""
    channel, report = os.pipe()
    holder = subprocess.Popen(
        [sys.executable, "-m", "gpudeck.scheduler.idle_holder",
         str(report), str(result), str(memory), *words],
        stdin=subprocess.PIPE,
        pass_fds=(report, result),
        env={**os.environ, ASSISTANT_MARK: "1"},
        start_new_session=True,
    )  # fmt: skip
    os.close(report)
    try:
        assert holder.stdin is not None
        with os.fdopen(channel, "rb") as reports:
            with suppress(BrokenPipeError):  # its report says more
                holder.stdin.write(order)
                holder.stdin.close()
            answer = reports.read()
    finally:
        holder.terminate()  # and with it what it runs
        holder.wait()
    if not answer:
        raise UserError(phrase("the process that held the GPU was ended from outside"))
    found: Outcome = pickle.loads(answer)  # noqa: S301 (of our own process)
    return found
