"""Errors that the user or the environment can correct; any other exception is a bug."""

from __future__ import annotations

from gpudeck.language.text import Message, Text, message_of, phrase

MALFORMED = (ValueError, RecursionError)
"""Errors of decoding foreign JSON: wrong syntax, types or UTF-8 (ValueError), or deep nesting."""


class UserError(Exception):
    """Report what is wrong and what to do, in one line, for the user to correct."""

    @property
    def message(self) -> Message:
        """Return the line as a value, which can be rendered in the user's language."""
        return message_of(self)


class NotFound(UserError):
    """Report that a job, a file or a workload that was named does not exist."""


class Refused(UserError):
    """Report that the daemon answered a request, and did not carry it out."""


class Unsettled(UserError):
    """Report that nobody can tell now whether a submission was queued. Later that is known."""


NOT_RUNNING = phrase(
    "the daemon does not run (start it with: {command})", command="gpudeck daemon start"
)


def no_machine(name: str) -> Text:
    """Return that no machine has this name."""
    return phrase(
        "there is no machine called {name}. See: {command}", name=name, command="gpudeck host"
    )


def no_job(number: int) -> Text:
    """Return that no job has this number."""
    return phrase("there is no job {job}. See: {command}", job=number, command="gpudeck jobs")


class DaemonGone(UserError):
    """Report that the daemon does not answer, or ended during a request."""


class EndUnknown(DaemonGone):
    """Report that a job is in the queue, and that nobody answers how it goes on."""

    def __init__(self, why: Message, job: int) -> None:
        super().__init__(
            phrase(
                "{why}, so it is not known how job {job} ends. It was queued, and goes on once a "
                "daemon runs. To find out: gpudeck wait {job}",
                why=why,
                job=job,
            )
        )


class OutcomeUnknown(DaemonGone):
    """Report that a submission was sent and not answered: it may or may not be in the queue."""

    def __init__(self, why: Message, token: str) -> None:
        super().__init__(
            phrase(
                "{why}, so it is not known whether the job was queued. "
                "To find out: gpudeck jobs --token {token}",
                why=why,
                token=token,
            )
        )
        self.token = token
