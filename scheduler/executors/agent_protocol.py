"""What the daemon and the agent of a cluster say to each other (one JSON message a line), and what an agent needs of a cluster.

The daemon decides, as only it knows what was committed; the agent does what waits for the network. An attempt is named in the
cluster by its nonce, so that asking twice for one makes no second one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from scheduler.protocol.errors import UserError

PREFIX = "gpudeck-"
"""Before the nonce of an attempt: its name in a cluster."""


class Config(msgspec.Struct, frozen=True):
    """The first line an agent reads."""

    where: str
    address: str
    token_file: str
    deck: str
    """Names all submissions of this state folder: others use the cluster, too."""
    log_limit: int = 0
    """Bytes that a job's log may have; 0: any number."""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """Run the attempt, unless the cluster has it already, or is another session than the one it was committed for."""

    job: int
    attempt: str
    session: str
    name: str
    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    gpus: int
    timeout: float
    folder: str
    """The job's folder here, which the cluster may share."""
    again: bool = False
    """The cluster may have been asked before: that it cannot be asked now does not mean that it will not run it."""


class Follow(msgspec.Struct, frozen=True, tag="follow"):
    """Copy the attempt's output, and say what becomes of it."""

    job: int
    attempt: str


class Halt(msgspec.Struct, frozen=True, tag="halt"):
    attempt: str


Command = Submit | Follow | Halt


class Here(msgspec.Struct, frozen=True, tag="here"):
    """The cluster answers."""

    session: str
    """Another one has forgotten all attempts."""
    ours: tuple[str, ...] | None = None
    """At times: the attempts of this deck that wait or run there."""


class Away(msgspec.Struct, frozen=True, tag="away"):
    """The cluster does not answer, or not to us."""

    why: str


class Known(msgspec.Struct, frozen=True, tag="known"):
    """The cluster has the attempt."""

    job: int
    attempt: str


class Unsent(msgspec.Struct, frozen=True, tag="unsent"):
    """The cluster was not asked to run the attempt, and will not be."""

    job: int
    attempt: str
    why: str


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """The cluster does not know the attempt."""

    job: int
    attempt: str
    session: str


class Doing(msgspec.Struct, frozen=True, tag="doing"):
    """What holds the attempt up; empty while it runs."""

    job: int
    attempt: str
    note: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The attempt is over: log, result and exit record are in the job's folder."""

    job: int
    attempt: str


Report = Here | Away | Known | Unsent | Missing | Doing | Ended


class Unreachable(UserError):
    """The cluster does not answer, or not to us. What was asked of it may have been done."""


class Refused(UserError):
    """The cluster will not run the attempt, and has not."""


class Unreadable(UserError):
    """The cluster answers, and the output of this attempt cannot be had now."""


class Status(NamedTuple):
    phase: Literal["pending", "running", "over"]
    note: str
    """What the cluster says of it."""
    failed: bool = False
    started: float = 0.0
    """Seconds since the epoch, as of `ended`; 0 where the cluster does not tell."""
    ended: float = 0.0


class Output(Protocol):
    """What an attempt prints, from its first byte on."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """End a reader in another thread. May be called again."""


class Backend(Protocol):
    """A kind of cluster. Every call may wait for the network, and raise Unreachable."""

    def session(self) -> str:
        """Another one when the cluster has forgotten what it was asked before."""

    def ours(self, deck: str) -> list[str]:
        """The attempts of this deck that wait or run there."""

    def submit(self, order: Submit, deck: str) -> None:
        """Have the attempt run; nothing where the cluster has it already. Raises Refused."""

    def status(self, attempt: str, folder: Path) -> Status | None:
        """`folder`: the job's, here. None where the cluster does not know the attempt."""

    def halt(self, attempt: str) -> None:
        """End the attempt; nothing where it has ended."""

    def output(self, attempt: str, folder: Path, follow: bool) -> Output:
        """`follow`: wait for more at its end. Raises Unreadable."""
