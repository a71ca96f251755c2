"""Notes stand in a job's timeline, whoever adds them, and stay there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gpudeck.scheduler.aio import AsyncClient
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.verbs.note import MAX_NOTE
from tests.integration.deck import kill_daemon, ready
from tests.integration.shell import gpudeck


def notes_of(deck: Client, job: int) -> list[str]:
    return [event.text for event in deck.timeline(job) if event.what == "note"]


def test_notes_are_added_in_any_state_and_outlive_the_daemon(cpu_home: Path) -> None:
    with Client() as deck:
        job = ready(deck).submit(["true"], hold=True, name="noted").id
        assert deck.note(job, "waits for data").status == "queued"
        deck.hold(job, False)
        deck.wait(job, 30)
        assert deck.note(job, "loss looks good").status == "done"
    kill_daemon()
    said = gpudeck("note", str(job), "used in the paper")
    assert (said.returncode, said.stdout) == (
        0,
        f"The note was added to the timeline of job {job}.\n",
    )
    assert json.loads(gpudeck("note", str(job), "as JSON", "--json").stdout)["id"] == job

    async def note() -> None:
        async with AsyncClient() as deck:
            await deck.note(job, "from a loop")

    asyncio.run(note())
    shown = gpudeck("jobs", str(job)).stdout
    with Client() as deck:
        wanted = [
            "waits for data",
            "loss looks good",
            "used in the paper",
            "as JSON",
            "from a loop",
        ]
        assert notes_of(deck, job) == wanted
        assert all(f"note: {text}\n" in shown for text in wanted)
        assert [job.id for job in deck.jobs()] == [job]
        assert deck.job(job).status == "done"


def test_a_note_cannot_control_a_terminal(shared: Client) -> None:
    job = shared.submit(["true"]).id
    gpudeck("note", str(job), "\x1b]0;title\x07\x1b[31mred\x1b[0m\r\nsecond\u202eline\x00"[:-1])
    (text,) = notes_of(shared, job)
    assert text.isprintable()
    assert "red" in text
    assert "\x1b" not in gpudeck("jobs", str(job)).stdout


def test_a_note_has_a_limit_and_a_job(shared: Client) -> None:
    job = shared.submit(["true"]).id
    shared.note(job, "x" * MAX_NOTE)
    with pytest.raises(UserError, match=f"up to {MAX_NOTE} characters, not {MAX_NOTE + 1}"):
        shared.note(job, "x" * (MAX_NOTE + 1))
    for empty in ("", " \n", "\x00"):
        with pytest.raises(UserError, match="the note is empty"):
            shared.note(job, empty)
    with pytest.raises(NotFound):
        shared.note(10**9, "nobody")
    assert len(notes_of(shared, job)) == 1
    missing = gpudeck("note", "1000000000", "nobody")
    assert (missing.returncode, missing.stdout) == (1, "")
