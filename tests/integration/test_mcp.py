"""Other programs read by the Model Context Protocol, and change nothing."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
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


async def _talk(calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[Any]]:
    # imported here, because all processes of the tests import this module and one runs it
    from mcp import Client as ProtocolClient
    from mcp import StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "gpudeck", "mcp"], env=dict(os.environ), cwd=str(ROOT)
    )
    async with ProtocolClient(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        return tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def test_its_tools_read_and_an_order_is_only_a_card(busy: int) -> None:
    tools, (rows, answer, card, wrong) = asyncio.run(
        _talk(
            [
                ("query", {"subject": "jobs", "states": ["running"]}),
                ("ask", {"question": "welche jobs laufen?"}),
                ("ask", {"question": f"cancel job {busy}"}),
                ("query", {"subject": "devices", "measure": "flavour"}),
            ]
        )
    )
    assert sorted(tools) == ["ask", "query"]
    found = rows.structured_content or json.loads(rows.content[0].text)
    assert [row["key"] for row in found["rows"]] == [f"job{busy}"]
    assert "1 Job läuft" in answer.content[0].text
    text = card.content[0].text
    assert f"Cancel job {busy} (long)?" in text and "Nothing was done" in text
    assert f"gpudeck ask 'cancel job {busy}'" in text
    assert wrong.is_error and "no measure 'flavour'" in wrong.content[0].text
    with Client(start=False) as deck:
        assert deck.job(busy).active, "no tool ends a job"


def test_a_query_without_measure_is_refused_in_a_line(busy: int) -> None:
    gpus = {"subject": "devices", "gpus": list(range(10_000))}
    jobs = {"subject": "jobs", "jobs": list(range(10_000))}
    asked: list[tuple[dict[str, Any], str]] = [
        ({"subject": "devices", "last_hours": 1e308}, "last_hours is from 0 to 87840; got 1e+308"),
        ({"subject": "devices", "last_hours": -1}, "last_hours is from 0"),
        ({"subject": "capacity", "job_memory_gib": 1e308}, "job_memory_gib is from 0"),
        (gpus, "names at most 1000 devices"),
        (jobs, "names at most 1000 jobs"),
        ({"subject": "jobs", "jobs": [10**30]}, "the number of a GPU or a job is"),
    ]
    _, answers = asyncio.run(_talk([("query", arguments) for arguments, _ in asked]))
    for answer, (_, message) in zip(answers, asked, strict=True):
        assert answer.is_error and message in answer.content[0].text
        assert "\n" not in answer.content[0].text


@pytest.mark.parametrize(
    "arguments", [{"jobs": [-1]}, {"gpus": [0, -1]}, {"limit": -5}, {"job_gpus": -1}]
)
def test_a_negative_number_is_refused(arguments: dict[str, Any]) -> None:
    from gpudeck.assistant.tool_server.server import ToolError, query

    with pytest.raises(ToolError, match="are 0 or more"):
        query("jobs", **arguments)
