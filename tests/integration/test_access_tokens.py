"""A program with an access token acts without asking, within the rights that a person stated."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.tools import access_files
from gpudeck.assistant.tools.access import OF_JOBS, AccessToken
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import python, running
from tests.integration.programs import gpudeck, talk, text
from tests.support import state_folder

pytestmark = pytest.mark.xdist_group("typical")
SLEEP = "sleep 300"


@pytest.fixture(scope="module")
def persons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the number of a job that a person submitted and that runs."""
    with state_folder(tmp_path_factory.mktemp("tokens") / "home"):
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            job = deck.submit(python("import time; time.sleep(300)"), name="long")
            running(deck, job.job)
            yield job.id


def added(*words: str) -> str:
    """Return the secret of a token that a person adds."""
    said = gpudeck("token", "add", *words, "--json")
    return str(msgspec.json.decode(said)["token"])


def done(result: Any) -> str:
    """Return what was done at once."""
    assert result.structured_content["state"] == "done", text(result)
    return str(result.structured_content["outcome"])


def waits(result: Any) -> bool:
    """Return whether it waits for a person."""
    return str(result.structured_content["state"]).startswith("waits for a person")


def test_a_token_acts_on_its_own_jobs_and_proposes_the_rest(persons: int, tmp_path: Path) -> None:
    secret = added("nightly", "--allow", "submit", "--allow", "cancel", "--for", "1h")
    asked = {"command": SLEEP, "folder": str(tmp_path), "options": {"name": "unattended"}}
    _, (sent,) = asyncio.run(talk([("submit", asked)], secret, "cron"))
    assert "Queued" in done(sent)
    with Client(start=False) as deck:
        own = next(job for job in deck.jobs() if job.spec.name == "unattended")
        _, (asked_for, ended, foreign, held) = asyncio.run(
            talk(
                [("ask", {"question": f"cancel job {own.id}"}),
                 ("cancel", {"jobs": [own.id]}), ("cancel", {"jobs": [persons]}),
                 ("hold", {"jobs": [own.id]})],
                secret,
                "cron",
            )
        )  # fmt: skip
        assert "waits for a person" in text(asked_for), "a sentence is no stated right"
        assert f"{own.id}" in done(ended) and waits(foreign)
        assert held.is_error or waits(held), "it is no verb of the token"
        assert deck.wait(own.id, 30.0).status == "cancelled" and deck.job(persons).active
        told = [str(event.text) for event in deck.timeline(own.id) if event.what == "ordered"]
    assert told == [f"{verb} by cron, allowed by the access token nightly"
                    for verb in ("submit", "cancel")]  # fmt: skip
    acts = gpudeck("token", "acts", "nightly")
    assert "cron" in acts and f"cancel jobs={own.id}" in acts and "Queued" in acts
    assert "nightly  submit, cancel  own" in gpudeck("token")
    assert "by cron" in gpudeck("jobs", str(own.id))
    assert "cancel by cron, allowed by the access token nightly" in gpudeck(
        "query", "events", "--jobs", str(own.id)
    )


def test_a_token_does_not_cancel_what_a_person_made_wait_for_its_jobs(
    persons: int, tmp_path: Path
) -> None:
    secret = added("ends", "--allow", "submit", "--allow", "cancel")
    asked = {"command": SLEEP, "folder": str(tmp_path), "options": {"name": "first"}}
    _, (sent,) = asyncio.run(talk([("submit", asked)], secret))
    assert "Queued" in done(sent)
    with Client(start=False) as deck:
        own = next(job for job in deck.jobs() if job.spec.name == "first")
        after = deck.submit(["true"], after=(own.id,))
        _, (refused,) = asyncio.run(talk([("cancel", {"jobs": [own.id]})], secret))
        assert waits(refused) and deck.job(own.id).active and deck.job(after.id).active
        deck.cancel_many((after.id,))
        _, (ended,) = asyncio.run(talk([("cancel", {"jobs": [own.id]})], secret))
        assert f"{own.id}" in done(ended)


@pytest.mark.parametrize("end", ["wrong", "revoked", "expired"])
def test_a_token_that_cannot_be_used_is_refused_in_one_line(persons: int, end: str) -> None:
    secret = "gpudeck-guess" if end == "wrong" else added(f"the {end}", "--allow", "cancel")
    if end == "revoked":
        gpudeck("token", "revoke", f"the {end}")
    if end == "expired":
        _let_expire(f"the {end}")
    os.environ[access_files.VARIABLE] = secret
    try:
        refusal = gpudeck("mcp")
    finally:
        del os.environ[access_files.VARIABLE]
    expected = {"wrong": "holds no access token of this machine"}.get(end, f"the {end} has expired")
    if end == "revoked":
        expected = "the revoked was revoked"
    assert expected in refusal and refusal.count("\n") == 1
    with pytest.raises(UserError, match=expected):
        access_files.token_of(secret)


def test_a_token_that_is_revoked_meanwhile_does_nothing_more(persons: int) -> None:
    secret = added("brief", "--allow", "cancel", "--jobs", "all")

    async def revoke_and_cancel() -> list[Any]:
        first = asyncio.create_task(
            talk([("query", {"subject": "jobs"})] * 40 + [("cancel", {"jobs": [persons]})], secret)
        )
        await asyncio.to_thread(gpudeck, "token", "revoke", "brief")
        return (await first)[1]

    try:
        last = asyncio.run(revoke_and_cancel())[-1]
    except Exception:  # noqa: BLE001 - it was revoked before the server began
        last = None
    assert last is None or (last.is_error and "was revoked" in text(last))
    with Client(start=False) as deck:
        assert deck.job(persons).active


def test_a_job_does_not_get_the_token_and_what_cannot_be_recorded_is_not_done(
    persons: int,
) -> None:
    secret = added("prints", "--allow", "submit", "--allow", "note", "--jobs", "all")
    _, (sent,) = asyncio.run(talk([("submit", {"command": "env"})], secret))
    assert "Queued" in done(sent)
    with Client(start=False) as deck:
        job = deck.jobs(1)[0]
        assert deck.wait(job.id, 30.0).status == "done"
        log = deck.log(job.id).decode()
    assert "PATH=" in log and secret not in log and access_files.VARIABLE not in log
    record = paths.home() / "access-acts.jsonl"
    kept = record.read_bytes()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600 and secret not in kept.decode()
    record.unlink()
    record.mkdir()
    _, (refused,) = asyncio.run(talk([("note", {"jobs": [persons], "text": "x"})], secret))
    record.rmdir()
    record.write_bytes(kept)
    assert refused.is_error and "cannot record" in text(refused)
    with Client(start=False) as deck:
        assert all(event.what != "note" for event in deck.timeline(persons))


def _let_expire(name: str) -> None:
    file = paths.home() / "access-tokens.json"
    known = msgspec.json.decode(file.read_bytes(), type=list[AccessToken])
    past = [msgspec.structs.replace(o, ends=time.time() - 1) if o.name == name else o
            for o in known]  # fmt: skip
    file.write_bytes(msgspec.json.encode(past))


def test_a_right_to_run_jobs_again_is_none_to_run_something_else(
    persons: int, tmp_path: Path
) -> None:
    secret = added("again", "--allow", "retry", "--jobs", "all")
    with Client(start=False) as deck:
        job = deck.submit(["bash", "-c", "exit 3"], name="ends")
        assert deck.wait(job.id, 30.0).status == "failed"
        again: list[dict[str, Any]] = [
            {"command": f"-c 'touch {tmp_path}/here'"}, {"cwd": str(tmp_path)},
            {"container": "podman:evil"}, {"mounts": "/"},
        ]  # fmt: skip
        calls = [
            ("retry", {"jobs": [job.id], **({"command": one["command"]} if "command" in one
                                            else {"options": one})})
            for one in again
        ]  # fmt: skip
        _, (*others, same) = asyncio.run(
            talk([*calls, ("retry", {"jobs": [job.id], "options": {"timeout": "1h"}})], secret)
        )
        assert all(other.is_error or waits(other) for other in others)
        assert "Queued" in done(same)
        new = next(one for one in deck.jobs() if one.id > job.id)
        assert deck.job(new.id).spec.argv == ("bash", "-c", "exit 3")
    assert not (tmp_path / "here").exists()


def test_the_files_are_private_and_hold_no_secret(persons: int) -> None:
    secret = added("kept", "--allow", "note")
    for name in ("access-tokens.json", "access.lock"):
        file = paths.home() / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert secret not in file.read_text()
    assert secret not in gpudeck("token", "--json") and "digest" not in gpudeck("token", "--json")


def test_rights_are_stated_by_verbs_that_exist_and_fit_the_jobs(persons: int) -> None:
    assert set(VERBS) - set(OF_JOBS) >= {"drain", "set", "kill", "book", "pause", "undo"}
    assert "there is no verb fly" in gpudeck("token", "add", "x", "--allow", "fly")
    assert "add --jobs all" in gpudeck("token", "add", "x", "--allow", "drain")
    assert "missing --allow" in gpudeck("token", "add", "x")
    assert "is needed; got '400d'" in gpudeck("token", "add", "x", "--allow", "note", "--for",
                                              "400d")  # fmt: skip
    added("twice", "--allow", "note")
    assert "already" in gpudeck("token", "add", "twice", "--allow", "note")
    assert "is called nobody" in gpudeck("token", "acts", "nobody")
