"""Programs that use GPU Deck by the Model Context Protocol, and the person who decides."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpudeck.assistant.tool_server.tools import NOTICE
from gpudeck.assistant.tools.access_files import VARIABLE

ROOT = Path(__file__).parents[2]
Calls = list[tuple[str, dict[str, Any]]]


async def talk(calls: Calls, token: str = "", name: str = "editor") -> tuple[list[Any], list[Any]]:
    """Return the tools that the server lists, and its results of calls, by the package's client."""
    # imported here, because all processes of the tests import this module and few run it
    from mcp import Client as ProtocolClient
    from mcp import StdioServerParameters, types

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gpudeck", "mcp"],
        env={**os.environ, **({VARIABLE: token} if token else {})},
        cwd=str(ROOT),
    )
    info = types.Implementation(name=name, version="1")
    async with ProtocolClient(server, client_info=info) as client:
        tools = list((await client.list_tools()).tools)
        return tools, [await client.call_tool(tool, arguments) for tool, arguments in calls]


def text(result: Any) -> str:
    """Return all that a model reads of a result."""
    return "\n".join(str(part.text) for part in result.content)


def refusal(result: Any) -> str:
    """Return the line that says why a call was refused."""
    assert result.is_error, text(result)
    notice, line = (str(part.text) for part in result.content)
    assert notice == NOTICE and "\n" not in line, line
    return line


def gpudeck(*words: str) -> str:
    """Return what a command prints, also where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "gpudeck", *words], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def in_terminal(words: list[str], answer: str) -> str:
    """Run a command in a terminal, answer its question, and return what it prints."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudeck", *words],
        stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, text=True,
    )  # fmt: skip
    os.write(master, f"{answer}\n".encode())
    said, _ = process.communicate(timeout=60)
    os.close(master)
    os.close(slave)
    return said
