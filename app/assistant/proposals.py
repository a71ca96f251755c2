"""The answers that a person can give to a proposal, and how a proposal stands."""

from __future__ import annotations

from typing import NamedTuple

from assistant.tools.proposal import Decision, Proposal


class Choice(NamedTuple):
    """One of the answers."""

    title: str
    help: str
    given: str
    """What is said once it was given."""


ANSWERS: dict[Decision, Choice] = {
    "once": Choice("Allow once", "Do it now, this time", "Allowed once."),
    "session": Choice(
        "Allow for this session",
        "Do it now; until this window is closed, do the like at once where it is asked for in plain words",
        "Allowed, and the like of it until this window is closed.",
    ),
    "never": Choice(
        "Never",
        "Do not do it, and never propose it again (Settings, Never proposed, takes that back)",
        "Refused, for good.",
    ),
}


def standing(proposal: Proposal, decision: str, now: float) -> str:
    """What became of it; or that nothing is done yet."""
    if decision in ANSWERS:
        return next(choice.given for how, choice in ANSWERS.items() if how == decision)
    if proposal.expires <= now:
        return "This proposal has expired, and nothing was done. Ask again."
    return " ".join(filter(None, (proposal.note, "Nothing is done before you allow it.")))


def said(proposal: Proposal, how: Decision) -> str:
    """The answer, as your words in the conversation."""
    return f"{ANSWERS[how].title}: {proposal.title}"
