"""Other programs ask and propose by the Model Context Protocol; a person decides."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.query.written import order_tools, read_order, read_query
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import python, running
from tests.support import state_folder

pytestmark = pytest.mark.xdist_group("typical")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the number of a job that runs."""
    with state_folder(tmp_path_factory.mktemp("mcp") / "home"):
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        with Client() as deck:
            job = deck.submit(python("import time; time.sleep(300)"), name="long")
            running(deck, job.job)
            yield job.id


async def _talk(
    calls: list[tuple[str, dict[str, Any]]], *options: str
) -> tuple[list[str], list[Any]]:
    # imported here, because all processes of the tests import this module and one runs it
    from mcp import Client as ProtocolClient
    from mcp import StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpudeck", "mcp", *options],
        env=dict(os.environ),
        cwd=str(ROOT),
    )
    async with ProtocolClient(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        return tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def _text(result: Any) -> str:
    return str(result.content[0].text)


def _tty(command: list[str], answer: str) -> str:
    """Run a command in a terminal, answer its question, and return what it prints."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudeck", *command],
        stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, text=True,
    )  # fmt: skip
    os.write(master, f"{answer}\n".encode())
    said, _ = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    return said


def test_queries_and_questions_only_read(busy: int) -> None:
    tools, (rows, answer, wrong) = asyncio.run(
        _talk(
            [
                ("query", {"subject": "jobs", "states": ["running"]}),
                ("ask", {"question": "welche jobs laufen?"}),
                ("query", {"subject": "devices", "measure": "flavour"}),
            ]
        )
    )
    assert {"query", "ask", "triage", "proposal", *VERBS} == set(tools)
    found = rows.structured_content or json.loads(_text(rows))
    assert [row["key"] for row in found["rows"]] == [f"job{busy}"]
    assert "1 Job läuft" in _text(answer)
    assert wrong.is_error and "no measure 'flavour'" in _text(wrong)


def test_an_order_waits_for_a_person_who_refuses_or_approves_it(busy: int) -> None:
    order = ("cancel", {"jobs": [busy]})
    _, (first, asked) = asyncio.run(_talk([order, ("ask", {"question": f"cancel job {busy}"})]))
    first_id = _text(first).split(":")[0].removeprefix("Proposal ")
    assert f"Cancel job {busy} (long)?" in _text(first) and "waits for a person" in _text(asked)
    with Client(start=False) as deck:
        assert deck.job(busy).active, "nothing is done by itself"
        listed = subprocess.run(
            [sys.executable, "-m", "gpudeck", "proposals"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert first_id[:8] in listed.stdout and f"Cancel job {busy} (long)" in listed.stdout
        assert "A person refused it" in _tty(["proposals", first_id[:8]], "n")
        assert deck.job(busy).active
        job = deck.submit(python("import time; time.sleep(300)"), name="short")
        _, (second,) = asyncio.run(_talk([("cancel", {"jobs": [job.id]})]))
        second_id = _text(second).split(":")[0].removeprefix("Proposal ")
        _, (waits,) = asyncio.run(_talk([("proposal", {"id": second_id})]))
        assert _text(waits) == "waiting for a person"
        _tty(["proposals", second_id], "y")
        assert deck.wait(job.id, 30.0).status == "cancelled"
    _, (refused, done, gone) = asyncio.run(
        _talk([("proposal", {"id": one}) for one in (first_id, second_id, "0" * 32)])
    )
    assert "A person refused it" in _text(refused)
    assert f"job {job.id}" in _text(done)
    assert _text(gone) == "expired: nothing was done"


def test_a_program_does_by_itself_only_what_who_started_it_allowed(
    busy: int, tmp_path: Path
) -> None:
    submit = ("submit", {"command": "touch here", "folder": str(tmp_path),
                         "options": {"name": "unattended", "retries": "1"}})  # fmt: skip
    _, (done, waits) = asyncio.run(
        _talk([submit, ("cancel", {"jobs": [busy]})], "--allow", "submit")
    )
    assert "Proposal" not in _text(done) and "Proposal" in _text(waits)
    with Client(start=False) as deck:
        job = next(one for one in deck.jobs() if one.spec.name == "unattended")
        assert deck.wait(job.id, 30.0).status == "done" and job.spec.retries == 1
        assert deck.job(busy).active
    assert (tmp_path / "here").exists()


def test_triage_says_why_a_job_failed(busy: int) -> None:
    with Client(start=False) as deck:
        job = deck.submit(python("import nowhere_to_be_found"))
        deck.wait(job.id, 30.0)
    _, (found,) = asyncio.run(_talk([("triage", {"job": job.id})]))
    assert "nowhere_to_be_found" in _text(found)


def test_a_tool_takes_what_its_verb_takes_and_says_so_in_its_schema(busy: int) -> None:
    _, answers = asyncio.run(
        _talk([("drain", {"jobs": [1]}), ("cancel", {"jobs": "1"}), ("fly", {}), ("query", {})])
    )
    assert all(answer.is_error for answer in answers)
    messages = list(map(_text, answers))
    assert messages[0] == "drain takes no jobs; it takes devices"
    assert "array" in messages[1] and "no tool is called 'fly'" in messages[2]
    assert messages[3] == "query needs subject"
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
    _, answers = asyncio.run(_talk([("query", arguments) for arguments, _ in asked]))
    for answer, (_, message) in zip(answers, asked, strict=True):
        assert answer.is_error and message in _text(answer)
        assert "\n" not in _text(answer)


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
