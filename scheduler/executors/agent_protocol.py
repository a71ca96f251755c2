"""The messages between the daemon and the agent of a cluster, and what an agent needs of a cluster.

The messages are JSON, one a line. The daemon decides, as only it knows what was committed; the
agent does what waits for the network. An attempt is named in the cluster by its nonce, so that
submitting it twice makes no second one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Spec

PREFIX = "gpudeck-"
"""Stands before the nonce of an attempt in its name in a cluster."""


class _Message(msgspec.Struct, frozen=True, tag=str.lower):
    """Represent a message that is tagged with the lower-case name of its class."""


class Config(msgspec.Struct, frozen=True):
    """Tell an agent which cluster to use: the first line it reads."""

    where: str
    address: str
    token_file: str
    deck: str
    """Names all attempts of this state folder, as the cluster runs those of others, too."""
    log_limit: int = 0
    """Bytes of a job's log that are kept; 0 keeps all."""


class SubmitAttempt(_Message, frozen=True):
    """Run the attempt, unless the cluster has it already, or has another session."""

    job: int
    attempt: str
    session: str
    """The session of the cluster that the attempt was committed for."""
    spec: Spec
    env: dict[str, str]
    folder: str
    """The job's folder on this machine, which the cluster may share."""
    again: bool = False
    """True where the cluster may have been asked before, and may run the attempt even if it does
    not answer now."""


class Follow(_Message, frozen=True):
    """Copy the attempt's output, and report how it goes on."""

    job: int
    attempt: str


class Halt(_Message, frozen=True):
    """End the attempt."""

    attempt: str


Command = SubmitAttempt | Follow | Halt


class Available(_Message, frozen=True):
    """The cluster answers."""

    session: str
    """A new session has forgotten all attempts."""
    attempts: tuple[str, ...] | None = None
    """The attempts of this deck that wait or run there; None where they were not listed."""


class Unavailable(_Message, frozen=True):
    """The cluster does not answer, or not to us."""

    why: Message


class Acknowledged(_Message, frozen=True):
    """The cluster has the attempt."""

    job: int
    attempt: str


class NotSubmitted(_Message, frozen=True):
    """The cluster was not asked to run the attempt, and will not be."""

    job: int
    attempt: str
    why: Message


class Missing(_Message, frozen=True):
    """The cluster does not have the attempt."""

    job: int
    attempt: str
    session: str


class Progressing(_Message, frozen=True):
    """The cluster has the attempt, and this note tells what holds it up; none while it runs."""

    job: int
    attempt: str
    note: Message


class Ended(_Message, frozen=True):
    """The attempt is over: log, result and exit record are in the job's folder."""

    job: int
    attempt: str


Report = Available | Unavailable | Acknowledged | NotSubmitted | Missing | Progressing | Ended


class Unreachable(UserError):
    """The cluster does not answer, or not to us. It may have done what it was asked."""


class Refused(UserError):
    """The cluster will not run the attempt, and has not."""


class Unreadable(UserError):
    """The cluster answers, but the output of this attempt cannot be read now."""


class Status(NamedTuple):
    """Describe an attempt as the cluster does."""

    phase: Literal["pending", "running", "over"]
    note: Message
    """What the cluster says about it."""
    failed: bool = False
    started: float = 0.0
    """Seconds since the epoch; 0 where the cluster does not know."""
    ended: float = 0.0
    """Seconds since the epoch; 0 where the cluster does not know."""


class Output(Protocol):
    """Iterate over what an attempt prints, from its first byte on."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Stop an iteration in another thread. May be called again."""


class Backend(Protocol):
    """Drive one kind of cluster. Every call may wait for the network, and raise Unreachable."""

    def session(self) -> str:
        """Return a name that changes when the cluster forgets what it was asked before."""

    def attempts(self, deck: str) -> list[str]:
        """Return the attempts of this deck that wait or run there."""

    def submit(self, request: SubmitAttempt, deck: str) -> None:
        """Have the attempt run; do nothing where the cluster has it already. Raises Refused."""

    def status(self, attempt: str, folder: Path) -> Status | None:
        """Return the attempt's status; None where the cluster does not have it.

        Args:
            folder: the job's folder on this machine.
        """

    def halt(self, attempt: str) -> None:
        """End the attempt; do nothing where it has ended."""

    def output(self, attempt: str, folder: Path, follow: bool) -> Output:
        """Return the attempt's output. Raises Unreadable.

        Args:
            folder: the job's folder on this machine.
            follow: wait for more at its end.
        """
