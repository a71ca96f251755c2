"""Prove changes in a process with limits, as proving runs people's own code.

This module needs no torch; the process does.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Literal

import msgspec

from gpudeck.accel.inject.finding import Shape, Speedup
from gpudeck.language.text import Message, phrase

TIMEOUT_S = 300.0
_CPU_S = 600
_FILE_BYTES = 256 * 2**20
_PROCESSES_MEMORY = 64 * 2**30


DEVICES = ("cpu", "cuda")


class Trial(msgspec.Struct, frozen=True):
    """Describe one comparison; see `gpudeck.accel.inject.compare.Trial`, which makes it."""

    inputs: str
    dtype: str
    linked: bool
    error_before: float
    error_after: float
    passed: bool
    ran: tuple[str, ...] = ()
    ms_before: float = 0.0
    ms_after: float = 0.0
    kept_before: int = 0
    kept_after: int = 0
    shape: Shape | None = None
    """The size of the largest attention that was linked."""


class Proof(msgspec.Struct, frozen=True):
    """Describe what running one linked attention showed."""

    file: str
    line: int
    outcome: Literal["proved", "wrong", "not run"]
    verdict: Message
    """The outcome as people read it, with the reason if it was not proved."""
    ran: Message = ""
    """What was run, such as `Attention(dim=32)`."""
    trials: tuple[Trial, ...] = ()
    speedup: Speedup | None = None
    """What is predicted for the largest attention that ran, if it ran on a CPU."""
    device: str = ""
    """Where it ran: cpu or cuda."""

    @property
    def proved(self) -> bool:
        """Return True if the linked code was compared and is right."""
        return self.outcome == "proved"


def not_run(
    file: str, line: int, why: Message, ran: Message = "", trials: tuple[Trial, ...] = ()
) -> Proof:
    """Return the proof of an attention that was not compared, with the reason."""
    return Proof(file, line, "not run", phrase("not run: {why}", why=why), ran, trials)


def command(path: Path, device: str = "cpu") -> list[str]:
    """Return the command that proves a file and prints a line of JSON for each attention."""
    # -P: a folder called `accel` beside the file must not be imported instead
    return [sys.executable, "-P", "-m", "gpudeck.accel.inject.proving", str(path), device]


def prove(path: Path, timeout: float = TIMEOUT_S, device: str = "cpu") -> list[Proof]:
    """Prove the linked attentions of a file in a process with limits of time, memory and output.

    On a GPU, whose driver reserves more addresses than there is memory, memory has no limit.

    What the code prints is not shown. A file whose process ends early has fewer proofs than
    attentions.
    """
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    try:
        ended = subprocess.run(
            command(path.resolve(), device), capture_output=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, preexec_fn=_limit if device == "cpu" else _limit_files,
            env=os.environ | hidden, cwd=path.resolve().parent,
        )  # fmt: skip
        output = ended.stdout
    except subprocess.TimeoutExpired as e:
        output = e.stdout or b""
    return decode(output)


def decode(output: bytes) -> list[Proof]:
    """Read the lines that the command printed; lines that are no proof are left out."""
    found = []
    for line in output.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Proof))
        except (msgspec.MsgspecError, ValueError):
            continue
    return found


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_PROCESSES_MEMORY, _PROCESSES_MEMORY))
    _limit_files()


def _limit_files() -> None:
    for what, most in (
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
