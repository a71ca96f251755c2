"""Damaged stores: the daemon must serve one, or refuse it in one line; it must not hang, crash, or half work."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from scheduler.client import Client
from scheduler.protocol import paths, settings
from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.jobs import Job, Queued
from scheduler.protocol.settings import Settings
from tests.integration.deck import kill_daemon, log_of
from tests.support import eventually, state_folder

DAMAGES = ("cut", "bytes changed", "page zeroed", "log cut", "log bytes changed", "log gone")


JOBS, WAITING = 40, 8
"""Jobs that have ended, and that are held, each with an environment of its own."""


def sound_stores(folder: Path) -> dict[str, Path]:
    """State folders with these jobs: of a daemon that was `stopped` (all is in the store), and `killed` (all is in its log)."""
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
    """Spoil the store in `home`, or its write-ahead log, which a killed daemon left there."""
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
    """What the daemon makes of a copy so damaged: serves, serves what is left, refuses, crashes or deceives; and its words."""
    with state_folder(folder / "home") as home:
        shutil.copytree(sound["killed" if how.startswith("log") else "stopped"], home)
        damage(home, how, draw)
        try:
            with Client(timeout=10.0) as deck:
                found = deck.jobs(1000)
                for job in found:
                    deck.job(job.id)
                new = deck.submit(["true"], env={})
                if said := eventually(lambda: _said_of(deck, new.id)).strip():
                    return "refuses", said
                if deceived := [
                    words
                    for job in found
                    if job.spec.name.startswith("held")
                    for words in _run(deck, job)
                ]:
                    return "deceives", ", ".join(deceived)
        except DaemonGone as e:
            return "crashes", f"{e}\n{_last_words()}"
        except UserError as e:
            return (
                ("crashes", f"{e}\n{_last_words()}")
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


def _said_of(deck: Client, job: int) -> str:
    """A blank once the job has ended, or what is said of the damage that keeps it from being started. Empty before."""
    state = deck.job(job).state
    waits = [state.reason] if isinstance(state, Queued) else []
    return next(
        (words for words in (*waits, *deck.snapshot().notices) if "damaged" in words),
        "" if deck.job(job).active else " ",
    )


def _token(number: int) -> str:
    return f"{number} " * 1000


def _run(deck: Client, job: Job) -> list[str]:
    """What is wrong with how a held job goes on once it is let go: with the environment it was submitted with, or not at all."""
    deck.hold(job.id, False)
    eventually(
        lambda: (
            not deck.job(job.id).active
            or "damaged" in f"{deck.job(job.id).state} {deck.snapshot().notices}"
        )
    )
    said, wanted = log_of(job), _token(int(job.spec.name.split()[1]))
    return (
        []
        if said in ("", wanted + "\n")
        else [f"job {job.id} ran with {said[:20]!r} for {wanted[:20]!r}"]
    )


def _last_words() -> str:
    return (
        paths.daemon_log().read_text(errors="replace")[-1500:]
        if paths.daemon_log().exists()
        else ""
    )
