"""Serve queries and orders over stdin and stdout. An order is a proposal for a person.

The package `mcp` is optional, so that this module is imported by `gpudeck mcp` alone.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from gpudeck.assistant.tool_server.tools import NOTICE, Found, Tools
from gpudeck.scheduler.protocol.errors import UserError

_ABOUT = (
    "GPU Deck watches the GPUs of this machine and queues jobs on them. The tools query and "
    "proposal only read. All others propose: a person sees what would happen and approves or "
    "refuses it, in the window or with the command gpudeck proposals. Use proposal to learn what "
    "became of it. Only what an access token allows is done at once."
)


def serve(secret: str = "") -> None:
    """Serve until stdin is closed; `secret` is that of an access token, if there is one."""
    tools = Tools(secret)

    async def listed(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.schema.name,
                    description=tool.schema.about,
                    input_schema=tool.schema.schema,
                    annotations=types.ToolAnnotations(read_only_hint=tool.only_reads),
                )
                for tool in tools.tools.values()
            ]
        )

    async def called(context: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        client = context.session.client_params
        program = client.client_info.name if client is not None else ""
        try:
            found = await asyncio.to_thread(tools.call, asked.name, asked.arguments or {}, program)
        except UserError as e:
            return types.CallToolResult(content=[_text(NOTICE), _text(str(e))], is_error=True)
        return _result(found)

    async def run() -> None:
        server = Server("gpudeck", instructions=_ABOUT, on_list_tools=listed, on_call_tool=called)
        async with stdio_server() as (source, sink):
            await server.run(source, sink, server.create_initialization_options())

    asyncio.run(run())


def _result(found: Found) -> types.CallToolResult:
    """Return a text as it is, and a value as JSON, each behind the notice that it is data."""
    if isinstance(found, str):
        return types.CallToolResult(content=[_text(NOTICE), _text(found)])
    found = {"notice": NOTICE, **found}
    return types.CallToolResult(
        content=[_text(msgspec.json.encode(found).decode())], structured_content=found
    )


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)
