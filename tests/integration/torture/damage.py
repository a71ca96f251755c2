"""Damage stores: the daemon must serve one or refuse it in one line, and neither hang nor crash."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from gpudeck.language.rendering import render
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import kill_daemon, log_of
from tests.support import eventually, state_folder

DAMAGES = ("cut", "bytes changed", "page zeroed", "log cut", "log bytes changed", "log gone")


JOBS, WAITING = 40, 8
"""How many jobs have ended, and how many are held, each with an environment of its own."""


def sound_stores(folder: Path) -> dict[str, Path]:
    """Make state folders with these jobs, of a daemon that was `stopped` and one that was `killed`.

    In the former all is in the store, in the latter all is in its write-ahead log.
    """
    made = {}
    for end in ("stopped", "killed"):
        with state_folder(folder / "home") as home:
            settings.save(Settings(source="cpu"))
            with Client() as deck:
                for job in [deck.submit(["true"], env={}) for _ in range(JOBS)]:
                    deck.wait(job.id, 30.0)
                for number in range(WAITING):
                    deck.submit(
                        ["sh", "-c", 'echo "$TOKEN"'],
                        env={"TOKEN": _token(number)},
                        name=f"held {number}",
                        hold=True,
                    )
                kill_daemon() if end == "killed" else deck.stop_daemon()
            made[end] = shutil.copytree(
                home, folder / end, ignore=shutil.ignore_patterns("daemon.*", "jobs")
            )
        shutil.rmtree(home)
    return made


def damage(home: Path, how: str, draw: random.Random) -> None:
    """Damage the store in `home`, or its write-ahead log, which a killed daemon left there."""
    file = home / ("gpudeck.sqlite-wal" if how.startswith("log") else "gpudeck.sqlite")
    if how == "log gone":
        file.unlink()
        return
    size = file.stat().st_size
    with file.open("r+b") as f:
        if how.endswith("cut"):
            f.truncate(draw.randrange(size))
        elif how == "page zeroed":
            f.seek(draw.randrange(size // 4096) * 4096)
            f.write(bytes(4096))
        else:
            for _ in range(draw.randint(1, 64)):
                f.seek(draw.randrange(size))
                f.write(draw.randbytes(1))


def verdict(sound: dict[str, Path], folder: Path, how: str, draw: random.Random) -> tuple[str, str]:
    """Return what the daemon does with a damaged copy, and its message.

    That is serves, serves what is left, refuses, crashes or deceives.
    """
    with state_folder(folder / "home") as home:
        shutil.copytree(sound["killed" if how.startswith("log") else "stopped"], home)
        damage(home, how, draw)
        try:
            with Client(timeout=10.0) as deck:
                found = deck.jobs(1000)
                for job in found:
                    deck.job(job.id)
                new = deck.submit(["true"], env={})
                if message := eventually(lambda: _message_about(deck, new.id)).strip():
                    return "refuses", message
                if deceived := [
                    words
                    for job in found
                    if job.spec.name.startswith("held")
                    for words in _run(deck, job)
                ]:
                    return "deceives", ", ".join(deceived)
        except DaemonGone as e:
            # A daemon may end when it comes upon the damage, if its last words name it.
            refuses = "is damaged" in str(e) and not _log_end()
            return "refuses" if refuses else "crashes", f"{e}\n{_log_end()}"
        except UserError as e:
            return (
                ("crashes", f"{e}\n{_log_end()}")
                if "ended with an error" in str(e) or "\n" in str(e)
                else ("refuses", str(e))
            )
        except AssertionError as e:  # neither in time
            return "crashes", str(e)
    return (
        ("serves", "")
        if len(found) == JOBS + WAITING
        else ("serves what is left", f"{len(found)} of {JOBS + WAITING} jobs")
    )


def _message_about(deck: Client, job: int) -> str:
    """Return a blank once the job has ended, or a message that it cannot start; empty before."""
    state = deck.job(job).state
    waits = [state.reason] if isinstance(state, Queued) else []
    told = map(render, (*waits, *deck.snapshot().notices))
    return next(
        (words for words in told if "damaged" in words),
        "" if deck.job(job).active else " ",
    )


def _token(number: int) -> str:
    return f"{number} " * 1000


def _run(deck: Client, job: Job) -> list[str]:
    """Release a held job, and return the errors: it must run with its own environment, or not."""
    deck.hold(job.id, False)
    eventually(
        lambda: (
            not deck.job(job.id).active
            or "damaged" in f"{deck.job(job.id).state} {deck.snapshot().notices}"
        )
    )
    printed, wanted = log_of(job), _token(int(job.spec.name.split()[1]))
    return (
        []
        if printed in ("", wanted + "\n")
        else [f"job {job.id} ran with {printed[:20]!r} for {wanted[:20]!r}"]
    )


def _log_end() -> str:
    return (
        paths.daemon_log().read_text(errors="replace")[-1500:]
        if paths.daemon_log().exists()
        else ""
    )
