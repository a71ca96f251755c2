"""The file of the access tokens, and the record of what was done with them.

Both are readable by their owner only. A token is stored as the digest of its secret.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gpudeck.assistant.tools.access import AccessToken, Act, JobsOf, check_rights
from gpudeck.language.text import moment, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED, NotFound, UserError

VARIABLE = "GPUDECK_TOKEN"
"""The environment variable in which a program hands its token to `gpudeck mcp`."""
MOST_TOKENS = 100
"""Tokens that are kept, those that cannot be used any more included."""
MOST_ACTS = 10_000
"""The newest acts that are kept. Jobs of older ones do not count as a token's own any more."""
_LONGEST_NAME = 40


def access_tokens() -> tuple[AccessToken, ...]:
    """Return all tokens, oldest first. Raises UserError if they cannot be read."""
    try:
        return msgspec.json.decode(_file().read_bytes(), type=tuple[AccessToken, ...])
    except FileNotFoundError:
        return ()
    except (*MALFORMED, OSError) as e:
        raise UserError(
            phrase(
                "cannot read the access tokens in {file}: {problem}. Delete the file, and add the "
                "tokens again.",
                file=str(_file()),
                problem=str(e),
            )
        ) from e


def add(name: str, verbs: tuple[str, ...], jobs: JobsOf, lasts_s: float) -> str:
    """Store a new token, and return its secret, which nobody can read again.

    Args:
        name: Your name for it. That of a token that cannot be used any more is free again.
        verbs: The orders that need no approval.
        jobs: The jobs that they may concern.
        lasts_s: Seconds until it expires.

    Raises:
        UserError: The name is taken, or the rights cannot be given so.
    """
    check_rights(verbs, jobs)
    if not (name.isprintable() and 0 < len(name.strip()) <= _LONGEST_NAME):
        raise UserError(phrase("a name has 1 to {most} printable letters", most=_LONGEST_NAME))
    now, secret = time.time(), f"gpudeck-{secrets.token_urlsafe(32)}"
    with _changing() as known:
        if any(one.name == name and one.state(now) == "valid" for one in known):
            raise UserError(
                phrase(
                    "there is an access token {name} already. Choose another name, or revoke it "
                    "first: gpudeck token revoke {name}",
                    name=name,
                )
            )
        made = AccessToken(name, _digest(secret), verbs, jobs, now, now + lasts_s)
        usable = [one for one in known if one.state(now) == "valid"]
        if len(usable) >= MOST_TOKENS:
            raise UserError(phrase("there are {n} access tokens: revoke one first", n=MOST_TOKENS))
        ended = [one for one in known if one not in usable][-MOST_TOKENS:]
        known[:] = [*ended[max(0, len(ended) + len(usable) + 1 - MOST_TOKENS) :], *usable, made]
    return secret


def revoke(name: str) -> None:
    """End the validity of a token. Raises NotFound if none of this name is valid."""
    with _changing() as known:
        now = time.time()
        for i, one in enumerate(known):
            if one.name == name and one.state(now) == "valid":
                known[i] = msgspec.structs.replace(one, revoked=now)
                return
        raise NotFound(phrase("no access token {name} is valid. See: gpudeck token", name=name))


def token_of(secret: str) -> AccessToken:
    """Return the valid token with this secret. Raises UserError, in one line, for any other."""
    digest, now = _digest(secret), time.time()
    found = next((o for o in access_tokens() if hmac.compare_digest(o.digest, digest)), None)
    if found is None:
        raise UserError(
            phrase(
                "{variable} holds no access token of this machine. To make one: {command}",
                variable=VARIABLE,
                command="gpudeck token add NAME --allow VERB",
            )
        )
    match found.state(now):
        case "revoked":
            raise UserError(
                phrase("the access token {name} was revoked ({when})", name=found.name,
                       when=moment(found.revoked, now))
            )  # fmt: skip
        case "expired":
            raise UserError(
                phrase("the access token {name} has expired ({when})", name=found.name,
                       when=moment(found.ends, now))
            )  # fmt: skip
    return found


def record(act: Act) -> None:
    """Add an act to the record, and forget the oldest ones where there are too many.

    Each has two lines: one before it is carried out, and one afterwards. Raises UserError.
    """
    paths.ensure(paths.home())
    try:
        with _locked():
            kept = [*_lines(), msgspec.json.encode(act)]
            if len(kept) > 4 * MOST_ACTS:
                paths.replace_file(_acts(), b"\n".join((*kept[-2 * MOST_ACTS :], b"")))
                return
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(_acts(), flags, paths.PRIVATE_FILE), "ab") as out:
                out.write(kept[-1] + b"\n")
    except OSError as e:
        raise _unusable(e) from e


def acts(token: AccessToken) -> tuple[Act, ...]:
    """Return what was done with a token, oldest first."""
    found: dict[str, Act] = {}
    for line in _lines():
        try:
            act = msgspec.json.decode(line, type=Act)
        except msgspec.MsgspecError:
            continue  # the machine stopped while it was written
        found[act.id] = act
    return tuple(act for act in found.values() if act.token == token.digest)


def own_jobs(token: AccessToken) -> frozenset[int]:
    """Return the jobs that were submitted with a token."""
    return frozenset(job for act in acts(token) for job in act.made)


def _lines() -> list[bytes]:
    try:
        with paths.open_plain(_acts()) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []
    except OSError as e:
        raise _unusable(e) from e


def _unusable(error: OSError) -> UserError:
    return UserError(
        phrase(
            "cannot record what is done with an access token in {file}: {problem}",
            file=str(_acts()),
            problem=str(error.strerror),
        )
    )


def _digest(secret: str) -> str:
    """Return the digest; the secret is random, so that no slow one is needed."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _file() -> Path:
    return paths.home() / "access-tokens.json"


def _acts() -> Path:
    return paths.home() / "access-acts.jsonl"


@contextmanager
def _locked() -> Iterator[None]:
    """Keep other processes from changing the files meanwhile."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    lock = os.open(paths.home() / "access.lock", flags, paths.PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _changing() -> Iterator[list[AccessToken]]:
    """Yield the tokens, and write them back."""
    paths.ensure(paths.home())
    with _locked():
        known = list(access_tokens())
        yield known
        paths.replace_file(_file(), msgspec.json.format(msgspec.json.encode(known)))
