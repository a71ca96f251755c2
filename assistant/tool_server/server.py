"""Serve queries and orders over stdin and stdout. An order is a proposal for a person.

The package `mcp` is optional, so that this module is imported by `gpudeck mcp` alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.query.execute import execute
from gpudeck.assistant.query.request import Order, Query
from gpudeck.assistant.query.table import VERBS
from gpudeck.assistant.query.written import (
    ToolSchema,
    order_tools,
    query_tool,
    read_order,
    read_query,
)
from gpudeck.language.rendering import in_english
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError

_ABOUT = (
    "GPU Deck watches the GPUs of this machine and queues jobs on them. The tools query, ask, "
    "triage and proposal only read. All others propose: a person sees what would happen and "
    "approves or refuses it, in the window or with the command gpudeck proposals. Use proposal to "
    "learn what became of it."
)
_WAITS = "It waits for a person, who decides in the window or with: gpudeck proposals"
_NAMELESS = "a program"
Arguments = Mapping[str, Any]


class ToolServer:
    """Hold the tools, and what they may do by themselves.

    Args:
        allowed: Verbs whose orders are carried out without asking; who started the server says so.
    """

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = allowed
        self.client = _NAMELESS
        """The name that the connected program gives itself."""
        text = {"type": "string"}
        self.tools: dict[str, tuple[ToolSchema, Callable[[Arguments], Any]]] = {
            tool.name: (tool, handler)
            for tool, handler in (
                (query_tool(), self._query),
                (_tool("ask", "Answer a question in English, German, French or Spanish. An order "
                       "in it is proposed.", {"question": text}), self._ask),
                (_tool("triage", "Say why a job failed: the cause, the line of its log and a "
                       "remedy.", {"job": {"type": "integer"}}), self._triage),
                (_tool("proposal", "Return what became of a proposal: waiting, or what was done.",
                       {"id": text}), self._proposal),
            )
        }  # fmt: skip
        for tool in order_tools():
            self.tools[tool.name] = tool, partial(self._order, tool.name)

    def call(self, name: str, arguments: Arguments) -> Any:
        """Return the result of a tool: a text, or rows. Raises UserError."""
        if name not in self.tools:
            raise UserError(f"no tool is called {name!r}: use {', '.join(self.tools)}")
        schema, handler = self.tools[name]
        if missing := [one for one in schema.schema["required"] if one not in arguments]:
            raise UserError(f"{name} needs {', '.join(missing)}")
        return handler(arguments)

    def _query(self, given: Arguments) -> Any:
        with Client() as daemon:
            return in_english(msgspec.to_builtins(execute(daemon, read_query(given, time.time()))))

    def _ask(self, given: Arguments) -> str:
        answer = Assistant().ask(str(given["question"]), device="cpu", by=self.client)
        if answer.proposal is None:
            return answer.text
        return f"{answer.text}\n\nProposal {answer.proposal.id}. {_WAITS}"

    def _triage(self, given: Arguments) -> str:
        job = read_query({"subject": "jobs", "jobs": [given["job"]]}, 0.0).jobs
        return Assistant().ask("", device="cpu", meant=Query("jobs", "failure", jobs=job)).text

    def _order(self, verb: str, given: Arguments) -> str:
        order, assistant = read_order(verb, given), Assistant()
        plain = Order(**{name: getattr(order, name) for name in Order.__struct_fields__})
        answer = assistant.ask(
            "", device="cpu", meant=plain, by=self.client, folder=order.folder or None
        )
        proposal = answer.proposal
        if proposal is None:
            raise UserError(answer.text)
        if verb in self._allowed:
            return assistant.approve(proposal).text
        return f"Proposal {proposal.id}: {proposal.title}? {proposal.effect} {_WAITS}"

    def _proposal(self, given: Arguments) -> str:
        try:
            found = Assistant(start=False).proposals(str(given["id"]))
        except (DaemonGone, FileNotFoundError):
            return "expired: nothing was done"
        if found.outcome:
            return found.outcome
        waits = any(one.id == given["id"] for one in found.waiting)
        return "waiting for a person" if waits else "expired: nothing was done"


def _tool(name: str, about: str, fields: Mapping[str, Any]) -> ToolSchema:
    return ToolSchema(name, about, {"type": "object", "properties": dict(fields),
                                    "required": list(fields)})  # fmt: skip


def serve(allowed: frozenset[str]) -> None:
    """Serve until stdin is closed. Raises UserError for a verb that does not exist."""
    if unknown := sorted(allowed - set(VERBS)):
        raise UserError(f"there is no verb {', '.join(unknown)}: use {', '.join(VERBS)}")
    tools = ToolServer(allowed)

    async def listed(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.about, input_schema=tool.schema)
                for tool, _ in tools.tools.values()
            ]
        )

    async def called(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        client = context.session.client_params
        tools.client = client.client_info.name if client is not None else _NAMELESS
        try:
            found = await asyncio.to_thread(tools.call, asked.name, asked.arguments or {})
        except UserError as e:
            return _result(str(e), failed=True)
        return _result(found)

    async def run() -> None:
        server = Server("gpudeck", instructions=_ABOUT, on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (source, sink):
            await server.run(source, sink, server.create_initialization_options())

    asyncio.run(run())


def _result(found: Any, failed: bool = False) -> types.CallToolResult:
    """Return a text as it is, and rows as JSON, too."""
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=None if isinstance(found, str) else found,
        is_error=failed,
    )
