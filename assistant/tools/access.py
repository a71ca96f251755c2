"""The access tokens with which programs act without asking, and what each allows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.tools.job_options import KNOWN
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError

JobsOf = Literal["own", "all"]
"""Only jobs that were submitted with the token, or all that its owner may change."""
State = Literal["valid", "expired", "revoked"]
_RUNS = "submit"
OF_JOBS = tuple(verb for verb, of in VERBS.items() if verb == _RUNS or "jobs" in of.takes)
"""Verbs that concern only the jobs that they name, or a new one."""


class AccessToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """Describe what a program may do without asking. The secret itself is kept nowhere."""

    name: str
    digest: str
    """Of the secret, SHA-256 in hexadecimal digits."""
    verbs: tuple[str, ...]
    jobs: JobsOf
    made: float
    """Seconds since the epoch, as are the following."""
    ends: float
    revoked: float = 0.0

    def state(self, now: float) -> State:
        """Return whether the token may be used."""
        return "revoked" if self.revoked else "expired" if self.ends <= now else "valid"

    def allows(self, order: Order, jobs: Collection[int], own: Collection[int]) -> bool:
        """Return whether an order may be carried out without asking.

        Args:
            order: The order.
            jobs: The jobs that it affects.
            own: The jobs that were submitted with this token.
        """
        if order.verb not in self.verbs or (_runs_another(order) and _RUNS not in self.verbs):
            return False
        return self.jobs == "all" or order.verb == _RUNS or (bool(jobs) and set(jobs) <= set(own))


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record what was done with an access token."""

    id: str
    """Of the proposal; what comes later about the same one replaces it."""
    time: float
    token: str
    """The digest of its secret."""
    program: str
    """The name that the program gave itself."""
    order: str
    """The order in one line, with its jobs as numbers."""
    outcome: str = ""
    """What was done, or why it was not; empty if the process ended meanwhile."""
    made: tuple[int, ...] = ()
    """The jobs that were submitted."""


def check_rights(verbs: Collection[str], jobs: JobsOf) -> None:
    """Raise UserError for verbs that do not exist, or that concern more than a token's own jobs."""
    if unknown := sorted(set(verbs) - set(VERBS)):
        raise UserError(
            phrase("there is no verb {names}: use {verbs}", names=", ".join(unknown),
                   verbs=", ".join(VERBS))
        )  # fmt: skip
    wide = sorted(set(verbs) - set(OF_JOBS))
    if wide and jobs == "own":
        raise UserError(
            phrase("{names} concerns the jobs of others, too: add --jobs all",
                   names=", ".join(wide))
        )  # fmt: skip


def _runs_another(order: Order) -> bool:
    """Return whether an order runs something else than what was submitted once.

    Only what `gpudeck edit` changes leaves the command, its folder and its environment alone.
    """
    options = (KNOWN.get(name) for name in order.options)
    fixed = order.verb == "retry" and any(o is not None and not o.editable for o in options)
    return bool(order.command or order.workload) or fixed
