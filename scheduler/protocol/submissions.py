"""What identifies a submission: its token, and the digest of what it asks for."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import check_indices
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.turns import Work, finish, parts


class SubmissionRecord(msgspec.Struct, frozen=True, gc=False):
    """Describe a submission that was queued."""

    token: str
    digest: str
    """The digest of what was submitted (see `digest_of`)."""
    first: int
    """The lowest number of its jobs."""
    count: int
    """How many jobs it has, whose numbers follow each other."""

    @property
    def numbers(self) -> range:
        """Return the numbers of its jobs."""
        return range(self.first, self.first + self.count)


def new_token() -> str:
    """Return a token that no other submission has."""
    return os.urandom(16).hex()


def check_token(token: str) -> None:
    """Raise UserError where a token is too long, or has characters that a shell would change."""
    if token and not re.fullmatch(r"[A-Za-z0-9._:@%+,=/-]{1,128}", token):
        raise UserError(
            phrase(
                "a token has up to 128 letters, digits and any of ._:@%+,=/- and not {token}",
                token=repr(token),
            )
        )


def indexed(spec: Spec, indices: Iterable[int]) -> list[Spec]:
    """Return the jobs of an array, one for each index. Raises UserError for wrong indices."""
    return [
        msgspec.structs.replace(spec, index=i, name=f"{spec.name}[{i}]")
        for i in check_indices(indices)
    ]


def digest_of(specs: Sequence[Spec]) -> str:
    """Return a digest of what is submitted: the same for the same command, typed again.

    The environment and what is inherited differ between two shells, and a time such as +2h between
    two moments.
    """
    return finish(digesting(specs))


def digesting(specs: Sequence[Spec]) -> Work[str]:
    """Return what `digest_of` does, part by part."""
    digest = hashlib.sha256()
    for part in parts(specs):
        for spec in part:
            asked = msgspec.structs.replace(spec, env={}, inherited=None, begin=0.0)
            digest.update(msgspec.json.encode(asked))
        yield
    return digest.hexdigest()


class PendingTokens:
    """Keep the tokens of submissions without an answer: what is sent again is not queued again."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def token_of(self, specs: Sequence[Spec]) -> str:
        """Return the token to submit these jobs with."""
        return self._tokens.setdefault(digest_of(specs), new_token())

    def answered(self, token: str) -> None:
        """Forget a submission: the same jobs are new ones from now on."""
        self._tokens = {digest: kept for digest, kept in self._tokens.items() if kept != token}
