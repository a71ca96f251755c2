"""Other programs ask and propose by the Model Context Protocol; a person decides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.query.request import Order
from gpudeck.assistant.query.table import SUBJECTS, VERBS
from gpudeck.assistant.query.written import order_tools, read_order, read_query
from gpudeck.assistant.tool_server.tools import NOTICE
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import python, running
from tests.integration.programs import gpudeck, in_terminal, refusal, talk, text
from tests.support import state_folder

pytestmark = pytest.mark.xdist_group("typical")


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the number of a job that runs."""
    with state_folder(tmp_path_factory.mktemp("mcp") / "home"):
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            job = deck.submit(python("import time; time.sleep(300)"), name="long")
            running(deck, job.job)
            yield job.id


def test_queries_and_questions_only_read(busy: int) -> None:
    tools, (rows, answer, wrong, help_text) = asyncio.run(
        talk(
            [
                ("query", {"subject": "jobs", "states": ["running"]}),
                ("ask", {"question": "welche jobs laufen?"}),
                ("query", {"subject": "devices", "measure": "flavour"}),
                ("query", {"subject": "help"}),
            ]
        )
    )
    assert {"query", "ask", "triage", "proposal", *VERBS} == {tool.name for tool in tools}
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == {"query", "proposal"}
    (about,) = (tool.description for tool in tools if tool.name == "query")
    assert all(f"\n{subject} (" in about for subject in SUBJECTS if subject != "conversion")
    found = rows.structured_content
    assert found == json.loads(text(rows)) and found["notice"] == NOTICE
    assert [row["key"] for row in found["rows"]] == [f"job{busy}"]
    assert text(answer).startswith(NOTICE) and "1 Job läuft" in text(answer)
    assert wrong.is_error and "no measure 'flavour'" in text(wrong)
    assert not help_text.is_error and "cancel" in text(help_text).casefold()


GPUS = {"subject": "devices"}
ABILITIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "get_info": ("query", {**GPUS, "measures": ["name", "use", "holder", "mem_free"]}, "mem_free"),
    "get_health": ("query", {"subject": "overview"}, "no alerts"),
    "list_jobs": ("query", {"subject": "jobs", "states": ["running"], "limit": 50, "order": "down",
                            "last_hours": 24}, "running"),
    "get_job": ("query", {"subject": "jobs", "jobs": ["long"],
                          "measures": ["state", "command", "submitted", "gpus", "priority", "group",
                                       "tags", "user", "waited", "devices", "files"]},
                "sleep(300)"),
    "get_job_log": ("query", {"subject": "jobs", "jobs": ["prints"], "measure": "log", "limit": 2},
                    "line 3\\nline 4"),
    "get_job_log first": ("query", {"subject": "jobs", "jobs": ["prints"], "measure": "log",
                                    "limit": 2, "order": "up"}, "line 0\\nline 1"),
    "get_stats": ("query", {"subject": "jobs", "measure": "gpu_hours", "by": "user",
                            "last_hours": 168}, "gpu_hours"),
    "get_queue_pressure": ("query", {"subject": "queue"}, "waiting"),
    "list_reservations": ("query", {"subject": "bookings"}, "bookings"),
    "preview_submit_jobs": ("submit", {"command": "true", "options": {"array": "0-3"}}, "runs"),
    "submit_jobs": ("submit", {"command": "true", "options": {"after": "held", "priority": "1"}},
                    "Priority"),
    "preview_update_job": ("edit", {"jobs": ["held"], "options": {"timeout": "3h"}}, "3 h"),
    "update_job": ("edit", {"jobs": ["held"], "options": {"gpus": "1", "retries": "2"}}, "Retries"),
    "hold_job": ("hold", {"jobs": ["waits"]}, "will not start"),
    "release_job": ("release", {"jobs": ["held"]}, "may start"),
    "cancel_job": ("cancel", {"jobs": ["held"]}, "on hold"),
    "redo_job": ("retry", {"jobs": ["prints"], "options": {"gpus": "1", "priority": "2"}}, "runs"),
    "triage_job": ("triage", {"job": "breaks"}, "ZeroDivisionError"),
}  # fmt: skip
"""What the tools of a peer do, by their names, and how ours do it."""


def test_all_that_the_seventeen_tools_of_a_peer_do_is_possible(busy: int) -> None:
    with Client(start=False) as deck:
        lines = deck.submit(python("for i in range(5): print('line', i)"), name="prints")
        breaks = deck.submit(python("1 / 0"), name="breaks")
        for job in (lines, breaks):
            deck.wait(job.id, 60.0)
        deck.submit(["true"], name="held", hold=True)
        deck.submit(["true"], name="waits", after=(busy,))
    calls = [(tool, arguments) for tool, arguments, _ in ABILITIES.values()]
    tools, results = asyncio.run(talk(calls))
    assert len(tools) == 4 + len(VERBS) > 17
    for (name, (_, _, wanted)), result in zip(ABILITIES.items(), results, strict=True):
        assert not result.is_error and wanted in text(result), (name, text(result))


def test_an_order_waits_for_a_person_who_refuses_or_approves_it(busy: int) -> None:
    order = ("cancel", {"jobs": [busy]})
    _, (first, asked) = asyncio.run(talk([order, ("ask", {"question": f"cancel job {busy}"})]))
    proposed = first.structured_content
    assert proposed["title"] == f"Cancel job {busy} (long)" and "SIGTERM" in proposed["effect"]
    assert proposed["state"].startswith("waits for a person")
    assert asked.structured_content["proposal"]["id"] == proposed["id"], "it waits already"
    with Client(start=False) as deck:
        assert deck.job(busy).active, "nothing is done by itself"
        listed = gpudeck("proposals")
        assert proposed["id"][:8] in listed and f"Cancel job {busy} (long)" in listed
        assert "A person refused it" in in_terminal(["proposals", proposed["id"][:8]], "n")
        assert deck.job(busy).active
        job = deck.submit(python("import time; time.sleep(300)"), name="short")
        _, (second,) = asyncio.run(talk([("cancel", {"jobs": [job.id]})]))
        second_id = second.structured_content["id"]
        _, (waits,) = asyncio.run(talk([("proposal", {"id": second_id})]))
        assert "waits for a person" in text(waits)
        in_terminal(["proposals", second_id], "y")
        assert deck.wait(job.id, 30.0).status == "cancelled"
        told = [str(event.text) for event in deck.timeline(job.id) if event.what == "ordered"]
        assert told == ["cancel by editor, approved by a person"]
    _, (refused, done, gone) = asyncio.run(
        talk([("proposal", {"id": one}) for one in (proposed["id"], second_id, "0" * 32)])
    )
    assert "A person refused it" in text(refused)
    assert f"job {job.id}" in text(done)
    assert "expired: nothing was done" in text(gone)


def test_a_person_is_asked_in_the_language_of_the_proposal(busy: int) -> None:
    with Client(start=False) as deck:
        job = deck.submit(python("import time; time.sleep(300)"), name="kurz")
        asked = f"brich job {job.id} ab"
        _, (answer,) = asyncio.run(talk([("ask", {"question": asked})]))
        number = answer.structured_content["proposal"]["id"]
        later = in_terminal(["proposals", number], "")
        assert f"Job {job.id} abbrechen? [j/n/never, oder Eingabe" in later
        assert "wartet weiter" in later and "waits" not in later
        assert deck.job(job.id).active
        in_terminal(["proposals", number], "ja")
        assert deck.wait(job.id, 30.0).status == "cancelled"


def test_a_preview_says_what_would_run_and_nothing_runs(busy: int, tmp_path: Path) -> None:
    options = {"gpus": "1", "memory": "1GiB", "array": "0-2", "timeout": "2h"}
    asked = {"command": "touch here", "folder": str(tmp_path), "options": options}
    _, (found, many, few) = asyncio.run(
        talk(
            [
                ("submit", asked),
                ("submit", {"command": "true", "options": {"array": "0-99999999"}}),
                ("submit", {"command": "true", "options": {"cwd": "/"}}),
            ]
        )
    )
    (runs,) = found.structured_content["runs"]
    assert runs["command"] == ["touch", "here"] and runs["folder"] == str(tmp_path)
    assert (runs["gpus"], runs["count"]) == (1, 3) and "who approves" in runs["environment"]
    assert runs["options"]["Memory"] == "1 GiB reserved on each device"
    assert runs["options"]["Time limit"] == "2 h for each attempt"
    assert "--array 0-2" in str(found.structured_content["details"])
    assert "1 to 10000 jobs" in refusal(many)
    assert "cannot be" in refusal(few) or "cwd" in refusal(few)
    with Client(start=False) as deck:
        assert all(job.spec.argv[:1] != ("touch",) for job in deck.jobs())
        in_terminal(["proposals", found.structured_content["id"]], "y")
        made = [job for job in deck.jobs() if job.spec.argv[:1] == ("touch",)]
        assert sorted(job.spec.index for job in made) == [0, 1, 2]
        assert {deck.wait(job.id, 60.0).status for job in made} == {"done"}
    assert (tmp_path / "here").exists()


def test_a_change_of_a_command_that_a_card_would_cut_off_is_refused(busy: int) -> None:
    with Client(start=False) as deck:
        job = deck.submit(["true", "x" * 1990], name="wordy")
        deck.wait(job.id, 60.0)
    _, (same,) = asyncio.run(talk([("retry", {"jobs": [job.id]})]))
    assert same.structured_content["runs"][0]["command"][1] == "x" * 1990
    changed = Order("retry", jobs=(job.id,), command="--hidden behind")
    answer = Assistant().ask("", device="cpu", meant=changed, by="editor")
    assert answer.proposal is None and "up to 2000 characters" in answer.text


def test_triage_quotes_the_output_and_proposes_what_may_help(busy: int) -> None:
    red = "print('\\x1b[31mstep 1\\x1b[0m'); raise SystemExit('%s')"
    with Client(start=False) as deck:
        missing = deck.submit(python("import nowhere_to_be_found"))
        limited = deck.submit(python("import time; time.sleep(60)"), timeout=0.5)
        refused = deck.submit(python(red % "Connection refused"))
        full = deck.submit(python(red % "CUDA out of memory"))
        for job in (missing, limited, refused, full):
            deck.wait(job.id, 60.0)
    named = (missing.id, limited.id, refused.id, full.id, busy)
    _, results = asyncio.run(talk([("triage", {"job": job}) for job in named]))
    first, second, third, fourth = (one.structured_content for one in results[:4])
    assert (first["state"], first["cause"], first["code"]) == ("failed", "import", 1)
    assert "nowhere_to_be_found" in first["line"] and "Install it" in first["remedy"]
    assert first["output"][-1] == first["line"] and "order" not in first
    assert (second["cause"], second["order"]["options"]) == ("time limit", {"timeout": "1"})
    assert second["proposal"]["title"].startswith(f"Run job {limited.id} ")
    assert second["proposal"]["id"][:8] in gpudeck("proposals")
    assert third["cause"] == "network" and third["order"]["jobs"] == [refused.id]
    assert third["output"] == ["step 1", "Connection refused"], "without its colour"
    assert fourth["cause"] == "gpu memory" and "proposal" not in fourth
    assert results[4].is_error and "has not failed: it is running" in text(results[4])


def test_a_tool_takes_what_its_verb_takes_and_says_so_in_its_schema(busy: int) -> None:
    _, answers = asyncio.run(
        talk([("drain", {"jobs": [1]}), ("cancel", {"jobs": "1"}), ("fly", {}), ("query", {}),
              ("ask", {"question": "?", "token": "x"})])
    )  # fmt: skip
    messages = list(map(refusal, answers))
    assert messages[0] == "drain takes no jobs; it takes devices"
    assert "array" in messages[1] and "no tool is called 'fly'" in messages[2]
    assert messages[3] == "query needs subject"
    assert messages[4] == "ask takes no token; it takes question"
    schemas = {tool.name: tool.schema for tool in order_tools()}
    assert set(schemas["drain"]["properties"]) == {"devices"}
    assert {"command", "options", "folder"} <= set(schemas["submit"]["properties"])


def test_a_query_that_is_too_large_is_refused_in_a_line(busy: int) -> None:
    gpus = {"subject": "devices", "devices": list(range(10_000))}
    jobs = {"subject": "jobs", "jobs": list(range(10_000))}
    asked: list[tuple[dict[str, Any], str]] = [
        ({"subject": "devices", "last_hours": 1e308}, "last_hours is from 0 to 87840; got 1e+308"),
        ({"subject": "devices", "last_hours": -1}, "last_hours is from 0"),
        ({"subject": "capacity", "amount": 1e308}, "amount is from 0"),
        (gpus, "names at most 1000 devices"),
        (jobs, "names at most 1000 jobs"),
        ({"subject": "jobs", "jobs": [10**30]}, "the number of a GPU or a job is"),
    ]
    _, answers = asyncio.run(talk([("query", arguments) for arguments, _ in asked]))
    for answer, (_, message) in zip(answers, asked, strict=True):
        assert message in refusal(answer)


@pytest.mark.parametrize(
    "arguments", [{"jobs": [-1]}, {"devices": [0, -1]}, {"limit": -5}, {"gpus": -1}]
)
def test_a_negative_number_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="are 0 or more"):
        read_query({"subject": "jobs", **arguments}, 0.0)
    if "jobs" in arguments:
        with pytest.raises(UserError, match="are 0 or more"):
            read_order("cancel", arguments)


def test_a_choice_that_is_no_text_is_refused_like_others() -> None:
    with pytest.raises(UserError, match="surrogates"):
        read_query({"subject": "jobs", "ahead": "a\ud800b"}, 0.0)
