"""What a person told the assistant never to propose: the setting `assistant_never`. What is allowed for a session its client keeps."""

from __future__ import annotations

from scheduler.client import Client
from scheduler.protocol.errors import NotFound, UserError
from scheduler.protocol.settings import listed


def check(daemon: Client, role: str, tool: str) -> None:
    """Raises UserError where a person said never."""
    if (named := f"{role} {tool}") in _never(daemon):
        raise UserError(f"you told me never to do this ({named}). {taken_back(named)}")


def refuse(daemon: Client, *tools: str) -> None:
    """Never propose these again, such as `operate cancel`."""
    daemon.configure(assistant_never=", ".join(sorted(_never(daemon) | set(tools))))


def take_back(daemon: Client, *tools: str) -> tuple[str, ...]:
    """Propose these again; what is still refused is returned. Raises NotFound."""
    refused = _never(daemon)
    if unknown := sorted(set(tools) - refused):
        raise NotFound(
            f"{unknown[0]!r} is not among what you told me never to do. See: gpudeck permissions"
        )
    never = tuple(sorted(refused - set(tools)))
    if tools:
        daemon.configure(assistant_never=", ".join(never))
    return never


def taken_back(tool: str) -> str:
    """How that is done."""
    return f"To take that back: gpudeck permissions --forget '{tool}'"


def _never(daemon: Client) -> frozenset[str]:
    return listed(daemon.snapshot().settings.assistant_never)
